"""A killed computation continues at the block it had reached, to the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softmax_bottleneck.spectrum import TSQR, Gram, Sketch, SpectrumMethod, WideGram, measure, saved
from softmax_bottleneck.spectrum.saved import SavedState

Matrix = NDArray[np.float64]


def by_sevens(make: Callable[..., SpectrumMethod], **options: Any) -> Callable[[int], SpectrumMethod]:
    """Let a method take seven rows at once."""

    def made(columns: int) -> SpectrumMethod:
        method = make(columns, **options)
        method.rows_at_once = 7
        return method

    return made


METHODS = {
    "gram": by_sevens(Gram),
    "wide": by_sevens(WideGram),
    "tsqr": by_sevens(TSQR),
    "sketch": by_sevens(Sketch, width=5, seed=3),
}


class Killed(BaseException):
    """An exception in place of a SIGKILL, which no code of the library catches."""


@pytest.fixture
def matrix() -> Matrix:
    return np.random.default_rng(0).standard_normal((60, 12))


@pytest.fixture(autouse=True)
def save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "SECONDS_BETWEEN_SAVES", -1.0)
    monkeypatch.setattr(saved, "SHARE_OF_TIME", float("inf"))


def _blocks(
    matrix: Matrix, asked: list[int], *, killed_at: int | None = None, killed_in: int = 0
) -> Callable[[int], Iterator[Matrix]]:
    """Return what gives the blocks after some rows, and is killed at a row of one of its calls."""
    earlier = len(asked)

    def blocks(done: int) -> Iterator[Matrix]:
        asked.append(done)
        passed = len(asked) - earlier - 1
        for start in range(done, len(matrix), 7):
            if killed_at is not None and start >= killed_at and passed == killed_in:
                raise Killed
            yield matrix[start : start + 7]

    return blocks


@pytest.mark.parametrize("killed_at", [7, 28, 56])
@pytest.mark.parametrize(("name", "killed_in"), [*((name, 0) for name in METHODS), ("sketch", 1)])
def test_it_continues_to_the_same_bits(
    matrix: Matrix, tmp_path: Path, name: str, killed_in: int, killed_at: int
) -> None:
    """In the pass that it had reached: a sketch has two."""
    method = METHODS[name]
    asked: list[int] = []
    expected = measure(_blocks(matrix, asked), method(12))
    killed = _blocks(matrix, asked, killed_at=killed_at, killed_in=killed_in)
    with pytest.raises(Killed):
        measure(killed, method(12), saved=SavedState(tmp_path, {"it": 1}))
    asked.clear()
    found = measure(_blocks(matrix, asked), method(12), saved=SavedState(tmp_path, {"it": 1}))
    assert asked == [killed_at, *[0] * (method(12).passes - killed_in - 1)]
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.centered, expected.centered)
    assert found.shape == expected.shape == (60, 12)
    assert (found.residual == expected.residual > 0) == (name == "sketch")
    assert list(tmp_path.iterdir()) == []


def test_another_computation_starts_anew(matrix: Matrix, tmp_path: Path) -> None:
    asked: list[int] = []
    with pytest.raises(Killed):
        measure(_blocks(matrix, asked, killed_at=28), METHODS["gram"](12), saved=SavedState(tmp_path, {"it": 1}))
    measure(_blocks(matrix, asked), METHODS["gram"](12), saved=SavedState(tmp_path, {"it": 2}))
    assert asked == [0, 0]


def test_a_damaged_file_starts_anew(matrix: Matrix, tmp_path: Path) -> None:
    asked: list[int] = []
    state = SavedState(tmp_path, {"it": 1})
    with pytest.raises(Killed):
        measure(_blocks(matrix, asked, killed_at=28), METHODS["gram"](12), saved=state)
    data = state.path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", data.replace(b"_mixed", b"_other", 2)):
        state.path.write_bytes(damaged)
        found = measure(_blocks(matrix, asked), METHODS["gram"](12), saved=SavedState(tmp_path, {"it": 1}))
        np.testing.assert_allclose(found.values, np.linalg.svd(matrix, compute_uv=False), rtol=1e-10)
    assert asked == [0, 0, 0, 0]


def test_saving_takes_a_small_share_of_the_time(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    state = SavedState(tmp_path, {"it": 1})
    state.offer(Gram(12), 0, 7)
    assert not state.path.exists()


def test_a_state_that_cannot_be_kept_is_a_warning(matrix: Matrix, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    found = measure(
        _blocks(matrix, []), METHODS["gram"](12), saved=SavedState(tmp_path / "file", {"it": 1}, warn=said.append)
    )
    np.testing.assert_allclose(found.values, np.linalg.svd(matrix, compute_uv=False), rtol=1e-10)
    [warning] = said
    assert "its state cannot be kept: cannot write" in warning
