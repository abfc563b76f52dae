"""Plain Zarr arrays and stores behind a URL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from softmax_bottleneck import dump, rank, singular_values
from softmax_bottleneck.errors import MatrixError, SourceError, StoreError
from softmax_bottleneck.sources import open_source

from .conftest import rows_of

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
        np.testing.assert_array_equal(rows_of(source, 4), matrix)
        assert (source.precision.dtype, source.precision.assumed) == (dtype, True)
    assert rank(str(tmp_path / "a.zarr")).rank.value == np.linalg.matrix_rank(matrix.astype(np.float64))


def test_a_store_behind_a_url_is_the_store(runs: dict[str, Path], tmp_path: Path) -> None:
    for name, source in {"run": open_source(runs["softmax"]), "matrix": open_source(np.eye(5), kind="matrix")}.items():
        here = open_source(dump(source, tmp_path / name))
        upload(tmp_path / name, f"memory://{name}.zarr")
        there = open_source(f"memory://{name}.zarr")
        assert there.description == {**here.description, "path": f"memory://{name}.zarr"}
        for key in ("shape", "dtype", "bound", "embedding_size", "precision", "identity"):
            assert getattr(there, key) == getattr(here, key)
        for block, same in zip(there.blocks(), here.blocks(), strict=True):
            np.testing.assert_array_equal(block.log_probs, same.log_probs)
    np.testing.assert_array_equal(open_source("memory://run.zarr").targets, open_source(runs["softmax"]).targets)
    assert rank("memory://matrix.zarr").rank.value == 5


LAYOUTS = {
    "format 2": {"chunks": (4, 8), "zarr_format": 2},
    "format 2 without a fill value": {"chunks": (4, 8), "zarr_format": 2, "fill_value": None},
    "format 3": {"chunks": (4, 8), "fill_value": 9},
    "format 3 in columns": {"chunks": (20, 2)},
    "shards": {"chunks": (2, 8), "shards": (4, 8)},
    "chunks of a shard": {"chunks": (4, 8), "shards": (20, 8)},
    "uncompressed": {"chunks": (4, 8), "compressors": None},
}


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        *((layout, dtype) for layout in LAYOUTS for dtype in (">f8", "int8")),
        ("format 3", "float16"),
        ("shards", "uint16"),
    ],
)
def test_a_missing_chunk_is_refused(layout: str, dtype: str, tmp_path: Path) -> None:
    """It would be read as the fill value: as zeros, for most."""
    array = zarr.create_array(tmp_path / "a.zarr", shape=(20, 8), dtype=dtype, **{"fill_value": 0, **LAYOUTS[layout]})
    matrix = np.random.default_rng(0).integers(1, 4, (20, 8)).astype(dtype)
    by_columns = layout == "format 3 in columns"
    for written in (np.s_[:, :4], np.s_[:, 6:]) if by_columns else (np.s_[:8], np.s_[12:]):
        array[written] = matrix[written]
    url = f"memory://missing-{tmp_path.name}.zarr"
    upload(tmp_path / "a.zarr", url)
    sentence = f"has no chunk for row {0 if by_columns else 8}, column {4 if by_columns else 0}: .*write_empty_chunks"
    for source in (tmp_path / "a.zarr", array, url):
        with pytest.raises(SourceError, match=sentence) as raised:
            rank(source, kind="matrix")
        assert "\n" not in str(raised.value)
    array[:] = matrix
    assert rank(array, kind="matrix").rank.value == np.linalg.matrix_rank(matrix.astype(np.float64))
    exact = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    assert singular_values(array).values == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("layout", ["format 2 without a fill value", "format 3", "shards"])
def test_chunks_of_the_fill_value_are_measured_when_they_were_written(layout: str, tmp_path: Path) -> None:
    settings = {"fill_value": 0, **LAYOUTS[layout], "config": {"write_empty_chunks": True}}
    zarr.create_array(tmp_path / "a.zarr", shape=(20, 8), dtype="float32", **settings)[:] = np.eye(20, 8, 5)
    assert rank(tmp_path / "a.zarr", kind="matrix").rank.value == 3


def test_numbers_that_mark_missing_chunks_are_measured(tmp_path: Path) -> None:
    """NaN that was written is named as such, and the largest integer is a number."""
    zarr.save_array(tmp_path / "a.zarr", np.full((4, 4), 127, dtype="int8"))
    assert rank(tmp_path / "a.zarr", kind="matrix").rank.value == 1
    zarr.save_array(tmp_path / "b.zarr", np.diag([1.0, np.nan, 1.0]))
    with pytest.raises(MatrixError, match="holds nan at row 1, column 1"):
        rank(tmp_path / "b.zarr", kind="matrix")


CODECS = {
    **{f"2, {name}": (2, numcodecs.get_codec({"id": name})) for name in ("zlib", "bz2", "lzma", "lz4", "zstd")},
    **{f"3, {type(codec).__name__}": (3, codec) for codec in (GzipCodec(), ZstdCodec(), BloscCodec())},
}


@pytest.mark.parametrize("name", CODECS)
def test_any_codec_of_numbers_is_read_and_a_cut_chunk_refused(name: str, tmp_path: Path) -> None:
    zarr_format, codec = CODECS[name]
    matrix, path = np.random.default_rng(0).standard_normal((8, 4)), tmp_path / "a.zarr"
    options: dict[str, Any] = {"compressors": codec, "zarr_format": zarr_format}
    zarr.create_array(path, shape=(8, 4), chunks=(8, 4), dtype="f8", **options)[:] = matrix
    assert rank(path, kind="matrix").rank.value == 4
    file = path / ("c/0/0" if zarr_format == 3 else "0.0")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    if name != "3, BloscCodec":  # numcodecs 0.16.6 reads on beyond the end of the chunk
        with pytest.raises(SourceError, match=r"a\.zarr cannot be read \("):
            rank(path, kind="matrix")


@pytest.mark.parametrize(
    ("dtype", "filters"), [("|O", ["vlen-utf8", "pickle"]), ("<f8", ["pickle"]), ("<f8", ["json2"])]
)
def test_codecs_of_objects_are_not_run(dtype: str, filters: list[str], tmp_path: Path) -> None:
    """Unpickling a chunk runs its code."""
    about = {"zarr_format": 2, "shape": [6, 4], "chunks": [6, 4], "dtype": dtype, "order": "C", "compressor": None}
    about |= {"filters": [{"id": name} for name in filters], "fill_value": "" if dtype != "<f8" else 0}
    (tmp_path / ".zarray").write_text(json.dumps(about))
    (tmp_path / "0.0").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(SourceError, match=r"must hold real numbers|chunks of the .* are pickled|cannot be read"):
        rank(tmp_path)


def test_packed_numbers_are_refused(tmp_path: Path) -> None:
    """netCDF and xarray keep whole numbers and what to multiply them with."""
    array = zarr.create_array(store=tmp_path / "x.zarr", data=np.arange(24, dtype=np.int16).reshape(6, 4))
    array.attrs["scale_factor"] = 0.001
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["logits"] = np.eye(4)
        file["logits"].attrs["add_offset"] = 1.0
    for name, packed in {"x.zarr": "scale_factor", "x.h5": "add_offset"}.items():
        with pytest.raises(SourceError, match=rf"are packed, by {packed}: write them unpacked"):
            rank(tmp_path / name, kind="logits")


def test_an_opened_store_is_the_store(log_probs: Make, tmp_path: Path) -> None:
    store = dump(log_probs(), tmp_path / "s.zarr")
    assert rank(zarr.open_group(store)).rank == rank(store).rank


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    group = zarr.create_group(store=tmp_path / "group.zarr", attributes={"mine": 1})
    for source in (group, (tmp_path / "group.zarr").as_uri()):
        with pytest.raises(StoreError, match=r"was not written by 'bottleneck dump' .* or one array of the group"):
            open_source(source)
    zarr.save_array(tmp_path / "one.zarr", np.ones(3))
    with pytest.raises(MatrixError, match="must have two dimensions"):
        open_source(tmp_path / "one.zarr")
