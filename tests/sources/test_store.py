"""The store: the source's numbers and provenance come back, and no damage passes unnoticed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from softmax_bottleneck import dump, kld, rank
from softmax_bottleneck.cli.environment import check
from softmax_bottleneck.errors import BottleneckError, ConfigurationError, MatrixError, OutputError, StoreError
from softmax_bottleneck.language_models import source as base
from softmax_bottleneck.sources import MatrixSource, Source, StoreSource, open_source, open_zarr

Matrix = NDArray[Any]
Make = Callable[..., NDArray[np.float64]]
HERE = Path(__file__).parent
SMALL = 4 * 8 * 8
"""Bytes of a chunk: four rows of eight float64."""


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def rows_of(source: Source, rows: int | None = None) -> Matrix:
    blocks = list(source.blocks(source.ranges(rows)))
    ends = np.cumsum([len(block.log_probs) for block in blocks])
    assert [block.start for block in blocks] == [0, *ends[:-1]]
    return np.concatenate([block.log_probs for block in blocks])


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BLOCK_BYTES", SMALL)


@pytest.fixture
def stored(log_probs: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of 18 × 8 in five chunks."""
    monkeypatch.setattr(base, "BLOCK_BYTES", SMALL)
    return dump(open_source(log_probs(18, 8)), tmp_path / "s.zarr")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("head", ["softmax", "mos"])
def test_a_runs_store_is_the_run(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str, dtype: str
) -> None:
    monkeypatch.setattr(base, "BLOCK_BYTES", 50 * 40 * np.dtype(dtype).itemsize)
    source = open_source(runs[head], dtype=dtype)
    found = open_source(dump(source, tmp_path / "s.zarr"))
    assert isinstance(found, StoreSource)
    assert len(list(found.blocks())) == 9
    np.testing.assert_array_equal(rows_of(found), rows_of(source))
    np.testing.assert_array_equal(found.targets, source.targets)
    for name in ("shape", "dtype", "bound", "embedding_size", "precision"):
        assert getattr(found, name) == getattr(source, name)
    assert found.identity == {**source.identity, "manifest": found.identity["manifest"]}
    assert found.description == {**source.description, "path": str(tmp_path / "s.zarr"), "kind": "store"}
    of_store, of_run = rank(found, method="dense").to_dict(), rank(source, method="dense").to_dict()
    for key in ("rank", "rank_centered", "bound", "eps", "embedding_size"):
        assert of_store[key] == of_run[key]
    assert kld(found) == kld(source)
    # The numbers that were summed once are what a plain Zarr reader sees.
    plain = zarr.open_group(tmp_path / "s.zarr", mode="r")
    np.testing.assert_array_equal(plain["log_probs"][:], rows_of(source))
    assert plain["log_probs"].chunks == (50, 40)
    assert np.isnan(plain["log_probs"].fill_value)
    assert plain.attrs["source"]["head"] == head


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8", "<i4"])
def test_matrices_of_any_dtype_come_back(tmp_path: Path, log_probs: Make, dtype: str) -> None:
    matrix = np.round(8 * log_probs(18, 8)).astype(dtype)
    np.save(tmp_path / "m.npy", matrix)
    source = open_source(tmp_path / "m.npy", kind="matrix")
    found = open_source(dump(source, tmp_path / "s.zarr"))
    np.testing.assert_array_equal(rows_of(found), matrix)
    assert found.dtype == source.dtype
    assert found.precision == source.precision
    assert found.targets is None


@pytest.mark.parametrize("rows", [None, 1, 3, 4, 7, 18, 100])
def test_blocks_of_any_size(stored: Path, log_probs: Make, rows: int | None) -> None:
    source = open_source(stored)
    np.testing.assert_array_equal(rows_of(source, rows), log_probs(18, 8))
    sizes = {len(block.log_probs) for block in list(source.blocks(source.ranges(rows)))[:-1]}
    assert sizes <= {rows or 4}
    wanted = list(source.blocks([range(8, 12)]))
    assert [block.start for block in wanted] == [8]
    np.testing.assert_array_equal(wanted[0].log_probs, log_probs(18, 8)[8:12])


def test_a_store_of_other_chunks_can_be_dumped(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BLOCK_BYTES", 7 * 8 * 8)
    again = open_source(dump(open_source(stored), tmp_path / "again.zarr"))
    np.testing.assert_array_equal(rows_of(again), rows_of(open_source(stored)))


def test_a_dump_is_finished_once(stored: Path, log_probs: Make) -> None:
    before = tree(stored)

    class Untouchable(np.ndarray):
        allowed = True

        def __getitem__(self, key: Any) -> Any:
            assert Untouchable.allowed, "a finished dump was computed again"
            return super().__getitem__(key)

    source = open_source(log_probs(18, 8).view(Untouchable))
    assert source.identity
    assert source.precision
    Untouchable.allowed = False
    dump(source, stored)
    assert tree(stored) == before


def test_a_dump_killed_at_any_instant_resumes_to_the_same_bytes(log_probs: Make, tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", log_probs(14, 5))
    folder = tmp_path / "stores"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(HERE / "dump_driver.py"), tmp_path / "m.npy", folder],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    renames, attempts = map(int, done.stdout.split())
    assert renames >= 9  # three zarr.json, the targets, four chunks, the manifest
    assert attempts > renames
    whole = tree(folder / "whole.zarr")
    stores = sorted(folder.glob("*.zarr"))
    assert len(stores) == 2 * (renames + 1) + 8 + 2
    for store in stores:
        assert tree(store) == whole, store.name
    np.testing.assert_array_equal(rows_of(open_source(folder / "again.zarr")), log_probs(14, 5))


@pytest.mark.usefixtures("_small_blocks")
def test_a_dump_that_stops_is_continued_where_it_was(log_probs: Make, tmp_path: Path) -> None:
    """And what is there already is not computed again."""
    computed: list[int] = []

    class Recording(np.ndarray):
        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, slice) and Recording.on:
                computed.append(key.start)
                if key.start == 12 and Recording.stop:
                    raise KeyboardInterrupt
            return super().__getitem__(key)

        on, stop = False, True

    source = open_source(log_probs(18, 8).view(Recording))
    assert source.identity
    assert source.precision
    Recording.on = True
    with pytest.raises(KeyboardInterrupt) as stopped:
        dump(source, tmp_path / "s.zarr")
    assert stopped.value.__notes__ == [
        f"12 of 18 contexts are kept in {tmp_path / 's.zarr'}, and the same command continues from there"
    ]
    assert computed == [0, 4, 8, 12]
    with pytest.raises(StoreError, match="not complete: rows from 12 on are missing; run the same 'bottleneck dump'"):
        rank(tmp_path / "s.zarr")
    Recording.stop = False
    dump(source, tmp_path / "s.zarr")
    expected = dump(open_source(log_probs(18, 8)), tmp_path / "whole.zarr")
    assert tree(tmp_path / "s.zarr") == tree(expected)


def test_a_missing_chunk(stored: Path, log_probs: Make) -> None:
    whole = tree(stored)
    (stored / "log_probs" / "c" / "2" / "0").unlink()
    sentence = r"chunk 2 of .*s\.zarr \(rows 8 to 11\) is missing or does not hold what was written; repeat"
    for measure in (rank, kld):
        with pytest.raises(StoreError, match=sentence):
            measure(stored)
    dump(open_source(log_probs(18, 8)), stored)
    assert tree(stored) == whole


@pytest.mark.parametrize("at", [0, 100, -1])
@pytest.mark.parametrize(("chunk", "rows"), [(0, "0 to 3"), (4, "16 to 17")])
def test_a_flipped_byte(stored: Path, log_probs: Make, chunk: int, rows: str, at: int) -> None:
    whole = tree(stored)
    file = stored / "log_probs" / "c" / str(chunk) / "0"
    data = bytearray(file.read_bytes())
    data[at % 128] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match=rf"chunk {chunk} of .*s\.zarr \(rows {rows}\) is missing or does not hold"):
        rank(stored)
    dump(open_source(log_probs(18, 8)), stored)
    assert tree(stored) == whole


def test_lost_parts(stored: Path, tmp_path: Path, log_probs: Make) -> None:
    whole = tree(stored)
    for lost, sentence in {
        "manifest.jsonl": "was only begun; run the same 'bottleneck dump' again",
        "targets": "the targets of .* are missing",
        "zarr.json": "is not a store of 'bottleneck dump'",
    }.items():
        copy = shutil.copytree(stored, tmp_path / f"{lost}.zarr")
        shutil.rmtree(copy / lost) if (copy / lost).is_dir() else (copy / lost).unlink()
        with pytest.raises(StoreError, match=sentence):
            open_source(copy)
        if lost != "zarr.json":
            dump(open_source(log_probs(18, 8)), copy)
            assert tree(copy) == whole
    for damage in ("gone", "short"):
        copy = shutil.copytree(stored, tmp_path / f"{damage}.zarr")
        if damage == "gone":
            shutil.rmtree(copy / "log_probs")
        else:
            chunk = copy / "log_probs" / "c" / "1" / "0"
            chunk.write_bytes(chunk.read_bytes()[:-3])
        with pytest.raises(StoreError, match=r"chunk [01] of .* is missing or does not hold what was written"):
            list(open_source(copy).blocks())
        dump(open_source(log_probs(18, 8)), copy)
        assert tree(copy) == whole
    for lost in ("eps", "bound", "contexts"):
        copy = shutil.copytree(stored, tmp_path / f"{lost}.zarr")
        description = json.loads((copy / "zarr.json").read_bytes())
        del description["attributes"][lost], description["attributes"]["sha256"]  # as in an older store
        (copy / "zarr.json").write_text(json.dumps(description))
        with pytest.raises(StoreError, match=f"are damaged .*{lost}"):
            open_source(copy)


def test_lost_targets_are_neither_zero_nor_unknown(runs: dict[str, Path], tmp_path: Path) -> None:
    source = open_source(runs["softmax"])
    store = dump(source, tmp_path / "s.zarr")
    (store / "targets" / "c" / "0").unlink()
    with pytest.raises(StoreError, match=r"the targets of .* are missing or do not hold"):
        open_source(store)
    np.testing.assert_array_equal(open_source(dump(source, store)).targets, source.targets)


def test_how_a_path_is_spelled_is_no_difference(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = dump(open_source(runs["softmax"]), tmp_path / "s.zarr")
    before = tree(store)
    monkeypatch.chdir(runs["softmax"].parent)
    dump(open_source(Path(runs["softmax"].name)), store)
    assert tree(store) == before


def test_nan_in_a_store_is_named_by_its_row(stored: Path, log_probs: Make) -> None:
    """A chunk can be as it was written and still hold what no rank can be taken of: that of a broken model."""

    source = open_source(log_probs(18, 8))
    blocks = MatrixSource.blocks

    def with_nan(self: MatrixSource, *args: Any, **options: Any) -> Iterator[base.Block]:
        for block in blocks(self, *args, **options):
            rows = block.log_probs.copy()
            if block.start == 8:
                rows[1, 3] = np.nan
            yield base.Block(block.start, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MatrixSource, "blocks", with_nan)
        shutil.rmtree(stored)
        with pytest.raises(MatrixError, match=r"array holds nan at row 9, column 3"):
            dump(source, stored)
        patch.setattr(
            "softmax_bottleneck.sources.store_writing.checked", lambda blocks, **_: blocks
        )  # as version 0.1.0 did
        dump(source, stored)
    with pytest.raises(MatrixError, match=r"s\.zarr holds nan at row 9, column 3"):
        rank(stored)


@pytest.mark.parametrize(
    ("other", "key"),
    [
        (lambda make: (make(18, 8, seed=1), {}), "identity"),
        (lambda make: (make(17, 8), {}), "contexts"),
        (lambda make: (make(18, 9), {}), "vocab"),
        (lambda make: (make(18, 8).astype(np.float32), {}), "identity"),
        (lambda make: (make(18, 8), {"kind": "matrix"}), "kind"),
    ],
    ids=["other numbers", "fewer rows", "more columns", "float32", "other kind"],
)
def test_a_store_of_something_else_is_left_alone(
    stored: Path, log_probs: Make, other: Callable[[Make], tuple[Matrix, dict[str, str]]], key: str
) -> None:
    before = tree(stored)
    matrix, options = other(log_probs)
    with pytest.raises(
        StoreError,
        match=rf"holds another dump: ({key} .*, not .*|another \w+, by the checksum); name another place",
    ):
        dump(open_source(matrix, **options), stored)
    assert tree(stored) == before


def test_a_store_of_another_run_is_left_alone(runs: dict[str, Path], tmp_path: Path) -> None:
    store = dump(open_source(runs["mos"]), tmp_path / "s.zarr")
    before = tree(store)
    for source, key in (
        (open_source(runs["softmax"]), "head"),
        (open_source(runs["mos"], contexts=30), "contexts"),
        (open_source(runs["mos"], split="valid"), "split"),
        (open_source(runs["mos"], dtype="float64"), "dtype"),
    ):
        with pytest.raises(StoreError, match=f"dump: {key} "):
            dump(source, store)
    assert tree(store) == before


def _group(path: Path) -> None:
    zarr.create_group(store=path, attributes={"mine": 1}, zarr_format=3).create_array("log_probs", data=np.ones(3))


FOREIGN: dict[str, Callable[[Path], None]] = {
    "a file in it": lambda path: (path / "notes.txt").write_text("mine") and None,
    "an array": lambda path: zarr.save_array(path, np.ones((2, 2))),
    "a group": _group,
    "a group of Zarr 2": lambda path: zarr.create_group(store=path, zarr_format=2) and None,
    "half a group": lambda path: (path / "zarr.json").write_text("{}") and None,
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_folder_is_left_alone(log_probs: Make, tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "s.zarr"
    path.mkdir()
    make(path)
    before = tree(path)
    assert before
    with pytest.raises(StoreError, match=r"s\.zarr is not empty and holds no store; name another place"):
        dump(open_source(log_probs()), path)
    with pytest.raises((StoreError, MatrixError)):
        rank(path)
    assert tree(path) == before


def test_places_for_a_store(log_probs: Make, tmp_path: Path) -> None:
    source = open_source(log_probs())
    assert dump(source, tmp_path / "deep" / "er" / "s.zarr") == tmp_path / "deep" / "er" / "s.zarr"
    (tmp_path / "empty").mkdir()
    assert open_source(dump(source, str(tmp_path / "empty"))).shape == (20, 8)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file is a file; name another place"):
        dump(source, tmp_path / "file")
    with pytest.raises(OutputError, match="cannot write"):
        dump(source, tmp_path / "file" / "s.zarr")
    with pytest.raises(StoreError, match=r"there is no store .*absent\.zarr; 'bottleneck dump RUN --out"):
        open_source(tmp_path / "absent.zarr")


def test_options_of_runs_are_refused_for_stores(stored: Path) -> None:
    with pytest.raises(ConfigurationError, match="data does not apply to a dumped store"):
        open_source(stored, data="ptb")
    with pytest.raises(ConfigurationError, match=r"needs a model with a log-linear head .*, not a store"):
        rank(stored, method="factored")


def test_the_first_contexts_of_a_store(stored: Path) -> None:
    whole, few = open_source(stored), open_source(stored, contexts=3)
    assert few.shape == (3, whole.shape[1])
    [block] = few.blocks()
    np.testing.assert_array_equal(block.log_probs, next(whole.blocks()).log_probs[:3])
    assert few.precision == whole.precision


def test_provenance_is_written_out(stored: Path) -> None:
    source = open_source(stored)
    attributes = json.loads((stored / "zarr.json").read_bytes())["attributes"]
    assert attributes["format"] == "softmax-bottleneck log-probability store 1"
    eps = source.precision.to_dict()
    assert attributes["eps"] == eps == {"value": 2.0**-52, "dtype": "float64", "assumed": True}
    assert attributes["bound"] == {"raw": None, "centered": None, "why": "nothing is known of what made the matrix"}
    assert (attributes["contexts"], attributes["vocab"], attributes["chunk_rows"]) == (18, 8, 4)
    lines = [json.loads(line) for line in (stored / "manifest.jsonl").read_text().splitlines()]
    assert [(line["start"], line["rows"]) for line in lines] == [(0, 4), (4, 4), (8, 4), (12, 4), (16, 2)]


def _flipped(store: Path, file: str, old: bytes, new: bytes) -> None:
    data = (store / file).read_bytes()
    assert data.count(old) == 1
    (store / file).write_bytes(data.replace(old, new))


@pytest.fixture
def seven(tmp_path: Path) -> tuple[Source, Path]:
    """A float32 matrix of rank 7 and its store."""
    generator = np.random.default_rng(0)
    matrix = (generator.standard_normal((40, 7)) @ generator.standard_normal((7, 20))).astype(np.float32)
    source = open_source(matrix, kind="matrix")
    return source, dump(source, tmp_path / "seven.zarr")


CHANGED = {
    "eps": ("zarr.json", b"1.1920928955078125e-07", b"1.1920928955078125e-17"),
    "bound": ("zarr.json", b'"raw": null', b'"raw": 9   '),
    "dtype": ("zarr.json", b'"dtype": "float32",\n    "eps"', b'"dtype": "float16",\n    "eps"'),
    "source": ("zarr.json", b'"path": "', b'"path": "x'),
    "identity": ("zarr.json", b'"identity": {', b'"identity": {"a":"",'),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_changed_attribute_is_seen(what: str, seven: tuple[Source, Path]) -> None:
    """The rank would be another one, and determinate."""
    source, store = seven
    assert rank(store).rank.value == 7
    _flipped(store, *CHANGED[what])
    for read in (
        rank,
        kld,
        check,
        lambda path: dump(source, path),
        lambda path: open_zarr(f"file://{path}", kind="matrix"),
    ):
        with pytest.raises(
            StoreError,
            match=r"the attributes of .*seven\.zarr are damaged .*: dump into",
        ):
            read(store)


ARRAYS = {
    "the rows' type": ("log_probs/zarr.json", b'"data_type": "float32"', b'"data_type": "int32"  '),
    "the rows' order of bytes": ("log_probs/zarr.json", b'"endian": "little"', b'"endian": "big"   '),
    "the rows' number": ("log_probs/zarr.json", b'"shape": [\n    40,', b'"shape": [\n    41,'),
    "the targets' type": ("targets/zarr.json", b'"data_type": "int64"', b'"data_type": "float64"'),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_a_changed_array_is_seen_and_written_anew(what: str, seven: tuple[Source, Path]) -> None:
    """With the same bytes: only what they are read as is another."""
    source, store = seven
    whole = tree(store)
    _flipped(store, *ARRAYS[what])
    for read in (rank, check):
        with pytest.raises(StoreError, match=r"do(es)? not hold what was written; repeat"):
            read(store)
    dump(source, store)
    assert tree(store) == whole


@pytest.mark.parametrize("file", ["zarr.json", "log_probs/zarr.json", "targets/zarr.json", "manifest.jsonl"])
def test_a_flipped_bit_is_seen_or_harmless(file: str, seven: tuple[Source, Path], tmp_path: Path) -> None:
    store = seven[1]
    expected, data = open_source(store), (store / file).read_bytes()
    rows = rows_of(expected)
    for at in range(0, len(data), 3):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 7
        (store / file).write_bytes(changed)
        try:
            found = open_source(store)
            np.testing.assert_array_equal(rows_of(found), rows)
        except BottleneckError:
            continue
        for name in ("shape", "dtype", "bound", "embedding_size", "precision"):
            assert getattr(found, name) == getattr(expected, name), at
        np.testing.assert_array_equal(found.targets or [], expected.targets or [])
