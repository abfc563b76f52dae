"""A killed computation continues at the block it had reached, to the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from softmax_bottleneck.spectrum import TSQR, Gram, SpectrumMethod, measure, saved
from softmax_bottleneck.spectrum.saved import SavedState

Matrix = NDArray[np.float64]
METHODS: list[Callable[[int], SpectrumMethod]] = [Gram, TSQR]


class Killed(BaseException):
    """Stands for a SIGKILL: nothing of the library catches it."""


@pytest.fixture
def matrix() -> Matrix:
    return np.random.default_rng(0).standard_normal((60, 12))


@pytest.fixture(autouse=True)
def save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "SECONDS_BETWEEN_SAVES", -1.0)
    monkeypatch.setattr(saved, "SHARE_OF_TIME", float("inf"))
    for method in METHODS:
        monkeypatch.setattr(method, "rows_at_once", 7)


def _blocks(matrix: Matrix, asked: list[int], *, killed_at: int | None = None) -> Callable[[int], Iterator[Matrix]]:
    def blocks(done: int) -> Iterator[Matrix]:
        asked.append(done)
        for start in range(done, len(matrix), 7):
            if killed_at is not None and start >= killed_at:
                raise Killed
            yield matrix[start : start + 7]

    return blocks


@pytest.mark.parametrize("killed_at", [7, 28, 56])
@pytest.mark.parametrize("method", METHODS)
def test_it_continues_to_the_same_bits(
    matrix: Matrix, tmp_path: Path, method: Callable[[int], SpectrumMethod], killed_at: int
) -> None:
    asked: list[int] = []
    expected = measure(_blocks(matrix, asked), method(12))
    with pytest.raises(Killed):
        measure(_blocks(matrix, asked, killed_at=killed_at), method(12), saved=SavedState(tmp_path, {"it": 1}))
    again = SavedState(tmp_path, {"it": 1})
    found = measure(_blocks(matrix, asked), method(12), saved=again)
    assert asked == [0, 0, killed_at]
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.centered, expected.centered)
    assert found.shape == expected.shape == (60, 12)
    assert list(tmp_path.iterdir()) == []


def test_another_computation_starts_anew(matrix: Matrix, tmp_path: Path) -> None:
    asked: list[int] = []
    with pytest.raises(Killed):
        measure(_blocks(matrix, asked, killed_at=28), Gram(12), saved=SavedState(tmp_path, {"it": 1}))
    measure(_blocks(matrix, asked), Gram(12), saved=SavedState(tmp_path, {"it": 2}))
    assert asked == [0, 0]


def test_a_damaged_file_starts_anew(matrix: Matrix, tmp_path: Path) -> None:
    asked: list[int] = []
    state = SavedState(tmp_path, {"it": 1})
    with pytest.raises(Killed):
        measure(_blocks(matrix, asked, killed_at=28), Gram(12), saved=state)
    data = state.path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", data.replace(b"_centered", b"_elsewhat", 2)):
        state.path.write_bytes(damaged)
        found = measure(_blocks(matrix, asked), Gram(12), saved=SavedState(tmp_path, {"it": 1}))
        np.testing.assert_allclose(found.values, np.linalg.svd(matrix, compute_uv=False), rtol=1e-10)
    assert asked == [0, 0, 0, 0]


def test_saving_takes_a_small_share_of_the_time(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    state = SavedState(tmp_path, {"it": 1})
    state.offer(Gram(12), 7)
    assert not state.path.exists()


def test_a_state_that_cannot_be_kept_is_a_warning(matrix: Matrix, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    found = measure(_blocks(matrix, []), Gram(12), saved=SavedState(tmp_path / "file", {"it": 1}, warn=said.append))
    np.testing.assert_allclose(found.values, np.linalg.svd(matrix, compute_uv=False), rtol=1e-10)
    [warning] = said
    assert "its state cannot be kept: cannot write" in warning
