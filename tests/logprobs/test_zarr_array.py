"""Plain Zarr arrays and stores behind a URL."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from softmax_bottleneck import dump, rank
from softmax_bottleneck.errors import MatrixError, SourceError, StoreError
from softmax_bottleneck.logprobs import open_source

Make = Callable[..., NDArray[np.float64]]


def upload(folder: Path, url: str) -> None:
    """Copy a folder into fsspec's memory."""
    files = fsspec.filesystem("memory")
    for file in folder.rglob("*"):
        if file.is_file():
            files.pipe(f"{url.removeprefix('memory:/')}/{file.relative_to(folder)}", file.read_bytes())


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_plain_array(log_probs: Make, tmp_path: Path, dtype: str, zarr_format: int) -> None:
    matrix = log_probs(23, 6).astype(dtype)
    zarr.save_array(tmp_path / "a.zarr", matrix, zarr_format=zarr_format)
    for name in (tmp_path / "a.zarr", (tmp_path / "a.zarr").as_uri()):
        source = open_source(str(name))
        np.testing.assert_array_equal(np.concatenate([block.log_probs for block in source.blocks(4)]), matrix)
        assert (source.precision.dtype, source.precision.assumed) == (dtype, True)
    assert rank(str(tmp_path / "a.zarr")).rank.value == np.linalg.matrix_rank(matrix.astype(np.float64))


def test_behind_a_url(log_probs: Make, tmp_path: Path) -> None:
    zarr.save_array(tmp_path / "a", log_probs())
    upload(tmp_path / "a", "memory://array.zarr")
    assert rank("memory://array.zarr").spectrum.shape == (20, 8)
    assert rank("memory://array.zarr", kind="matrix").spectrum.shape == (20, 8)


def test_a_store_behind_a_url_keeps_its_precision(log_probs: Make, tmp_path: Path) -> None:
    store = dump(open_source(log_probs().astype(np.float32)), tmp_path / "s.zarr")
    upload(store, "memory://store.zarr")
    there, here = open_source("memory://store.zarr"), open_source(store)
    assert there.precision == here.precision
    np.testing.assert_array_equal(next(there.blocks()).log_probs, next(here.blocks()).log_probs)


def test_a_store_behind_a_url_keeps_what_is_known_of_it(runs: dict[str, Path], tmp_path: Path) -> None:
    upload(dump(open_source(runs["softmax"]), tmp_path / "s.zarr"), "memory://run.zarr")
    there, here = open_source("memory://run.zarr"), open_source(tmp_path / "s.zarr")
    assert (there.bound, there.embedding_size) == (here.bound, here.embedding_size)
    assert there.targets is not None
    np.testing.assert_array_equal(there.targets, here.targets)
    assert there.description["head"] == "softmax"


def test_a_matrix_behind_a_url_stays_one(tmp_path: Path) -> None:
    """Rows that are no log-probabilities were dumped as such, and are read as such."""
    upload(dump(open_source(np.eye(5), kind="matrix"), tmp_path / "s.zarr"), "memory://matrix.zarr")
    assert rank("memory://matrix.zarr").rank.value == 5


def test_a_store_behind_a_url_with_a_damaged_record(log_probs: Make, tmp_path: Path) -> None:
    store = dump(open_source(log_probs()), tmp_path / "s.zarr")
    attributes = zarr.open_group(store, mode="r+").attrs
    del attributes["eps"]
    upload(store, "memory://changed.zarr")
    with pytest.raises(StoreError, match=r"the attributes of memory://changed.zarr are not those that were written"):
        open_source("memory://changed.zarr")
    del attributes["sha256"]  # as in an older store
    upload(store, "memory://damaged.zarr")
    with pytest.raises(StoreError, match=r"damaged.zarr is damaged \(KeyError\('eps'\)\)"):
        open_source("memory://damaged.zarr")


def test_a_chunk_that_was_never_written_is_no_number(log_probs: Make, tmp_path: Path) -> None:
    store = dump(open_source(log_probs()), tmp_path / "s.zarr")
    shutil.rmtree(store / "log_probs" / "c")
    upload(store, "memory://torn.zarr")
    with pytest.raises(MatrixError, match="holds nan at row 0, column 0"):
        rank("memory://torn.zarr")


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    zarr.create_group(store=tmp_path / "group.zarr", attributes={"mine": 1})
    with pytest.raises(StoreError, match="is a group that 'bottleneck dump' did not write"):
        open_source((tmp_path / "group.zarr").as_uri())
    with pytest.raises(SourceError, match=r"memory://absent\.zarr cannot be opened as a Zarr array"):
        open_source("memory://absent.zarr")
    with pytest.raises(SourceError, match=r"nosuch://bucket/a\.zarr cannot be opened as a Zarr array"):
        open_source("nosuch://bucket/a.zarr")
    zarr.save_array(tmp_path / "one.zarr", np.ones(3))
    with pytest.raises(MatrixError, match="must have two dimensions"):
        open_source(tmp_path / "one.zarr")
