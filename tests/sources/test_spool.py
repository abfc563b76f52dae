"""Blocks that are read once are kept, in memory or on disk, in the widest of their types."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import softmax_bottleneck as sb
from softmax_bottleneck.errors import OutputError
from softmax_bottleneck.sources.spool import Spool

ROWS: NDArray[np.float64] = np.log(np.random.default_rng(0).dirichlet(np.ones(5), 40))


@pytest.mark.parametrize("kept", [0, 100, 1 << 20])
@pytest.mark.parametrize("types", [["float32"] * 4, ["float32", "float64", "float32", "float64"], ["float16", "int64"]])
def test_all_rows_come_back_in_the_widest_type(kept: int, types: list[str]) -> None:
    pieces = [part.astype(name) for part, name in zip(np.array_split(10 * ROWS, len(types)), types, strict=True)]
    kept_rows = Spool(kept)
    for piece in pieces:
        kept_rows.add(piece)
    whole = np.concatenate(pieces)
    assert (kept_rows.shape, kept_rows.dtype) == (whole.shape, whole.dtype)
    for start, stop in ((0, 40), (0, 1), (7, 31), (39, 40)):
        np.testing.assert_array_equal(kept_rows[start:stop], whole[start:stop], strict=True)


def test_a_generator_is_measured_and_dumped_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spool.__init__, "__defaults__", (1000,))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def blocks() -> Iterator[NDArray[np.float64]]:
        buffer = np.empty((8, 5))
        for start in range(0, 40, 8):
            buffer[:] = ROWS[start : start + 8]  # the memory of a block is used again
            yield buffer

    assert sb.rank(blocks()).rank.value == sb.rank(ROWS).rank.value == 5
    sb.dump(blocks(), tmp_path / "rows.zarr")
    assert sb.kld(str(tmp_path / "rows.zarr")).kld == pytest.approx(sb.kld(ROWS).kld)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.zarr"]


def test_a_folder_of_temporary_files_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(OutputError, match="cannot be kept in the folder of temporary files"):
        Spool(10).add(ROWS)
