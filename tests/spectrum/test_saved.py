"""A killed computation continues at the rows it had reached, to the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck.spectrum import TSQR, Gram, RangeFinder, WideGram, decompose, saved
from softmax_bottleneck.spectrum.saved import SavedState

METHODS: dict[str, Callable[[int], Any]] = {
    "gram": Gram,
    "wide": WideGram,
    "tsqr": TSQR,
    "sketch": lambda columns: RangeFinder(columns, width=5, seed=(3,)),
}
MATRIX = np.random.default_rng(0).standard_normal((60, 12))


class Killed(BaseException):
    """An exception in place of a SIGKILL, which no code of the library catches."""


@pytest.fixture(autouse=True)
def save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save after every seven rows."""
    monkeypatch.setattr(saved, "SECONDS_BETWEEN_SAVES", -1.0)
    monkeypatch.setattr(saved, "SHARE_OF_TIME", float("inf"))
    monkeypatch.setattr("softmax_bottleneck.spectrum.compute.gathered", lambda blocks, *_: map(np.array, blocks))


def run(name: str, state: SavedState | None, *, killed_at: int = 99, killed_in: int = 0) -> tuple[Any, list[int]]:
    """Return the spectrum of `MATRIX` and the rows at which each pass began, or raise at a row of one of them."""
    began: list[int] = []

    def blocks(done: int) -> Iterator[Any]:
        began.append(done)
        for start in range(done, len(MATRIX), 7):
            if start >= killed_at and len(began) == killed_in + 1:
                raise Killed
            yield MATRIX[start : start + 7]

    return decompose(blocks, METHODS[name](12), saved=state), began


@pytest.mark.parametrize("killed_at", [7, 28, 56])
@pytest.mark.parametrize(("name", "killed_in"), [*((name, 0) for name in METHODS), ("sketch", 1)])
def test_it_continues_to_the_same_bits(tmp_path: Path, name: str, killed_in: int, killed_at: int) -> None:
    """In the pass that it had reached: a sketch has two."""
    expected, _ = run(name, None)
    with pytest.raises(Killed):
        run(name, SavedState(tmp_path, {"it": 1}), killed_at=killed_at, killed_in=killed_in)
    assert run(name, SavedState(tmp_path, {"it": 2}))[1][0] == 0  # another computation
    found, began = run(name, SavedState(tmp_path, {"it": 1}))
    assert began == [*[60] * killed_in, killed_at, *[0] * (name == "sketch" and not killed_in)]
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.centered, expected.centered)
    assert found.shape == expected.shape == (60, 12)
    assert (found.residual == expected.residual > 0) == (name == "sketch")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, files in ((60.0, 0), (-1.0, 1)):  # saving takes a small share of the time
        monkeypatch.setattr(saved, "SECONDS_BETWEEN_SAVES", seconds)
        with pytest.raises(Killed):
            run("gram", SavedState(tmp_path, {"it": 1}), killed_at=28)
        assert len(list(tmp_path.iterdir())) == files
    [path] = tmp_path.iterdir()
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", data.replace(b"1.npy", b"9.npy")):
        path.write_bytes(damaged)
        found, began = run("gram", SavedState(tmp_path, {"it": 1}))
        np.testing.assert_allclose(found.values, np.linalg.svd(MATRIX, compute_uv=False), rtol=1e-10)
        assert began == [0]


def test_a_state_that_cannot_be_kept_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    found, _ = run("gram", SavedState(tmp_path / "file", {"it": 1}, warn=said.append))
    np.testing.assert_allclose(found.values, np.linalg.svd(MATRIX, compute_uv=False), rtol=1e-10)
    [warning] = said
    assert "its state cannot be kept: cannot write" in warning
