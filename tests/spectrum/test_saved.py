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


METHODS = {"gram": by_sevens(Gram), "wide": by_sevens(WideGram), "tsqr": by_sevens(TSQR)}
SKETCH = by_sevens(Sketch, width=5, seed=3)


class Killed(BaseException):
    """An exception in place of a SIGKILL, which no code of the library catches."""


@pytest.fixture
def matrix() -> Matrix:
    return np.random.default_rng(0).standard_normal((60, 12))


@pytest.fixture(autouse=True)
def save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "SECONDS_BETWEEN_SAVES", -1.0)
    monkeypatch.setattr(saved, "SHARE_OF_TIME", float("inf"))


def _blocks(matrix: Matrix, asked: list[int], *, killed_at: int | None = None) -> Callable[[int], Iterator[Matrix]]:
    def blocks(done: int) -> Iterator[Matrix]:
        asked.append(done)
        for start in range(done, len(matrix), 7):
            if killed_at is not None and start >= killed_at:
                raise Killed
            yield matrix[start : start + 7]

    return blocks


@pytest.mark.parametrize("killed_at", [7, 28, 56])
@pytest.mark.parametrize("name", METHODS)
def test_it_continues_to_the_same_bits(matrix: Matrix, tmp_path: Path, name: str, killed_at: int) -> None:
    method = METHODS[name]
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


@pytest.mark.parametrize("killed_at", [7, 28, 56])
@pytest.mark.parametrize("killed_in", [0, 1])
def test_a_sketch_continues_in_the_pass_it_had_reached(
    matrix: Matrix, tmp_path: Path, killed_in: int, killed_at: int
) -> None:
    asked: list[int] = []
    expected = measure(_blocks(matrix, asked), SKETCH(12))
    calls = 0

    def blocks(done: int) -> Iterator[Matrix]:
        nonlocal calls
        calls += 1
        return _blocks(matrix, asked, killed_at=killed_at if calls == killed_in + 1 else None)(done)

    with pytest.raises(Killed):
        measure(blocks, SKETCH(12), saved=SavedState(tmp_path, {"it": 1}))
    asked.clear()
    found = measure(_blocks(matrix, asked), SKETCH(12), saved=SavedState(tmp_path, {"it": 1}))
    assert asked == ([killed_at, 0] if killed_in == 0 else [killed_at])
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.residual == expected.residual > 0


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
