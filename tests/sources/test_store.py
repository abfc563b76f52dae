"""The store: the source's numbers and provenance come back, and no damage passes unnoticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from numpy.typing import NDArray

from attacks.damage import flip
from softmax_bottleneck import compare, dump, kld, rank
from softmax_bottleneck.cli.doctor import check
from softmax_bottleneck.errors import BottleneckError, MatrixError, OutputError, StoreError
from softmax_bottleneck.heads import Softmax
from softmax_bottleneck.language_models import source as base
from softmax_bottleneck.sources import MatrixSource, open_source
from softmax_bottleneck.sources.store import StoreSource

from .conftest import rows_of

Matrix = NDArray[Any]
Make = Callable[..., NDArray[np.float64]]
HERE = Path(__file__).parent
SMALL = 4 * 8 * 8
"""Bytes of a chunk: four rows of eight float64."""


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def stored(log_probs: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of 18 × 8 in five chunks."""
    monkeypatch.setattr(base, "BLOCK_BYTES", SMALL)
    return dump(open_source(log_probs(18, 8)), tmp_path / "s.zarr")


def test_a_store_is_compared_where_its_targets_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its source is, chunk by chunk."""
    monkeypatch.setattr(base, "BLOCK_BYTES", SMALL)
    rng = np.random.default_rng(0)
    hidden, targets = rng.standard_normal((18, 3)), rng.integers(0, 8, 18)
    targets[[0, 5, 6, 17]] = -1
    one, other = (Softmax.of(torch.from_numpy(rng.standard_normal((8, 3)))) for _ in range(2))
    folder, whole = dump(open_source(one, hidden=hidden, targets=targets), tmp_path / "s.zarr"), targets >= 0
    scored = open_source(folder).scored()
    np.testing.assert_array_equal(rows_of(scored, 3), rows_of(open_source(folder))[whole])
    student = open_source(other, hidden=hidden[whole], targets=targets[whole])
    expected = compare(open_source(one, hidden=hidden[whole], targets=targets[whole]), student)
    assert compare(folder, student).statistics["kl"].value == pytest.approx(expected.statistics["kl"].value, rel=1e-6)


@pytest.mark.parametrize(("head", "dtype"), [("softmax", "float32"), ("mos", "float64")])
def test_a_runs_store_is_the_run(runs: Any, tmp_path: Path, monkeypatch: Any, head: str, dtype: str) -> None:
    monkeypatch.setattr(base, "BLOCK_BYTES", 50 * 40 * np.dtype(dtype).itemsize)
    source = open_source(runs[head], dtype=dtype)
    found = open_source(dump(source, tmp_path / "s.zarr"))
    assert isinstance(found, StoreSource)
    assert len(list(found.blocks())) == 9
    np.testing.assert_array_equal(rows_of(found), rows_of(source))
    np.testing.assert_array_equal(found.targets, source.targets)
    for name in ("shape", "dtype", "bound", "embedding_size", "precision"):
        assert getattr(found, name) == getattr(source, name)
    assert found.identity == {**source.identity, "store": found.identity["store"]}
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


@pytest.mark.parametrize("copies", [1, 15])
@pytest.mark.parametrize("others", ["floored", "rounded"])
def test_the_first_rows_of_a_store_are_those_of_its_matrix(
    copies: int, others: str, log_probs: Make, tmp_path: Path
) -> None:
    """What was found in all rows is not said of the first ones: copies, floors, noise."""
    first, rest = np.repeat(log_probs(20, 60), copies, 0), log_probs(800, 60, seed=1)
    rest = np.maximum(rest, -4.5) if others == "floored" else np.round(rest, 1)
    rest -= np.logaddexp.reduce(rest, 1)[:, None]
    matrix, kept = np.concatenate([first, rest]), len(first)
    path = dump(matrix, tmp_path / "s.zarr")
    assert dump(matrix, path) == path  # with what is repeated
    store = open_source(path, contexts=kept)
    expected = rank(matrix[:kept]).to_dict()
    found = rank(store).to_dict()
    for key in ("rank", "rank_centered", "eps", "verdict"):
        assert found[key] == expected[key]
    assert kld(store).doubt == kld(matrix[:kept]).doubt == ""


def test_what_is_refused_leaves_nothing_behind(log_probs: Make, tmp_path: Path) -> None:
    """The same place takes the dump with the right kind."""
    natural = log_probs(30, 12)
    for rows, wrong, right in ((natural + 3, "log-probs", "logits"), (-natural, "logits", "matrix")):
        out = tmp_path / f"{right}.zarr"
        for place in (out, tmp_path / "t.parquet"):
            with pytest.raises(MatrixError, match=r"negative logarithms|kind"):
                dump(rows, place, kind=wrong, **({"top": 3} if place != out else {}))
            assert not place.exists()
        assert len(rows_of(open_source(dump(rows, out, kind=right)))) == 30


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8", "<i4"])
def test_matrices_of_any_dtype_come_back_in_blocks_of_any_size(
    tmp_path: Path, log_probs: Make, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "BLOCK_BYTES", SMALL)
    matrix = np.round(8 * log_probs(18, 8)).astype(dtype)
    np.save(tmp_path / "m.npy", matrix)
    source = open_source(tmp_path / "m.npy", kind="matrix")
    store = dump(source, tmp_path / "s.zarr")
    found, few = open_source(store), open_source(store, contexts=3)
    for rows in (None, 1, 3, 7, 100):
        np.testing.assert_array_equal(rows_of(found, rows), matrix)
        np.testing.assert_array_equal(rows_of(few, rows), matrix[:3])
    with pytest.raises(BottleneckError, match="is a matrix of any kind: give log-probabilities or logits"):
        compare(store, store)
    (part,) = found.blocks([range(8, 12)])
    assert part.start == 8
    np.testing.assert_array_equal(part.log_probs, matrix[8:12])
    for each in (found, few):
        assert (each.dtype, each.precision, each.targets) == (source.dtype, source.precision, None)


@pytest.mark.parametrize("states", [False, True])
def test_a_dump_killed_at_any_instant_resumes_to_the_same_bytes(states: bool, log_probs: Make, tmp_path: Path) -> None:
    """A store, and a folder of hidden states."""
    np.save(tmp_path / "m.npy", log_probs(10, 5))
    np.save(tmp_path / "w.npy", log_probs(9, 5))
    folder = tmp_path / "stores"
    folder.mkdir()
    driver = [str(HERE / "dump_driver.py"), tmp_path / "m.npy", folder, *([tmp_path / "w.npy"] if states else [])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", *driver],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    renames, attempts = map(int, done.stdout.split())
    assert renames >= 6  # three zarr.json, three chunks; two descriptions, a head and three files
    assert attempts > 4
    whole = tree(folder / "whole.zarr")
    stores = sorted(folder.glob("*.zarr"))
    assert len(stores) == renames + 3
    for store in stores:
        assert tree(store) == whole, store.name
    if states:
        expected = rows_of(open_source(tmp_path / "m.npy", head=str(tmp_path / "w.npy")))
        again = (folder / "again.zarr").rename(tmp_path / "again")  # a name that is not a store's
        np.testing.assert_array_equal(rows_of(open_source(again)), expected)
    else:
        np.testing.assert_array_equal(rows_of(open_source(folder / "again.zarr")), log_probs(10, 5))


class Recording(np.ndarray):
    """A matrix that records which rows are computed, and stops once at row 12."""

    on = stop = False
    computed: list[int]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and Recording.on:
            Recording.computed.append(key.start)
            if key.start == 12 and Recording.stop:
                raise KeyboardInterrupt
        return super().__getitem__(key)


def test_a_dump_that_stops_is_continued_where_it_was(log_probs: Make, tmp_path: Path, monkeypatch: Any) -> None:
    """What is there already is not computed again, and a finished dump computes nothing."""
    monkeypatch.setattr(base, "BLOCK_BYTES", SMALL)
    store = tmp_path / "s.zarr"
    source = open_source(log_probs(18, 8).view(Recording))
    assert source.identity
    assert source.precision
    monkeypatch.setattr(Recording, "computed", [], raising=False)
    monkeypatch.setattr(Recording, "on", True)
    monkeypatch.setattr(Recording, "stop", True)
    with pytest.raises(KeyboardInterrupt) as stopped:
        dump(source, store)
    assert stopped.value.__notes__ == [
        f"12 of 18 contexts are kept in {store}, and the same command continues from there"
    ]
    assert Recording.computed == [0, 0, 4, 8, 12]  # the first row is checked before anything is written
    with pytest.raises(StoreError, match=r"rows 12 to 15 of the store .* missing .*: run the same 'bottleneck dump'"):
        rank(store)
    monkeypatch.setattr(Recording, "stop", False)
    dump(source, store)
    dump(source, store)
    assert Recording.computed == [0, 0, 4, 8, 12, 0, 12, 16, 0]
    assert tree(store) == tree(dump(open_source(log_probs(18, 8)), tmp_path / "whole.zarr"))


def _replace(old: bytes, new: bytes) -> Callable[[Path], None]:
    def replace(file: Path) -> None:
        data = file.read_bytes()
        assert data.count(old) == 1
        file.write_bytes(data.replace(old, new))

    return replace


ROWS = r"rows {} of the store .*s\.zarr are missing or damaged"
ARRAY = r"an array of .*s\.zarr is missing or does not hold what was written"
DAMAGE: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "a chunk is lost": ("log_probs/c/2/0", Path.unlink, ROWS.format("8 to 11")),
    "the first byte of a chunk": ("log_probs/c/0/0", flip(0), ROWS.format("0 to 3")),
    "the checksum of a chunk": ("log_probs/c/4/0", flip(-1), ROWS.format("16 to 17")),
    "a chunk is cut": ("log_probs/c/1/0", lambda file: file.write_bytes(file.read_bytes()[:-3]), ROWS.format("4 to 7")),
    "all rows are lost": ("log_probs", shutil.rmtree, ARRAY),
    "the targets are lost": ("targets", shutil.rmtree, ARRAY),
    "the chunk of the targets is lost": ("targets/c/0", Path.unlink, ARRAY),
    "a target": ("targets/c/0", flip(8), ARRAY),
    "the type of the rows": ("log_probs/zarr.json", _replace(b'"float64"', b'"int64"  '), ARRAY),
    "the order of bytes": ("log_probs/zarr.json", _replace(b'"endian": "little"', b'"endian": "big"   '), ARRAY),
    "the number of rows": ("log_probs/zarr.json", _replace(b'"shape": [\n    18,', b'"shape": [\n    19,'), ARRAY),
    "no checksum": ("log_probs/zarr.json", _replace(b'"crc32c"', b'"bytes"'), ARRAY),
    "the type of the targets": ("targets/zarr.json", _replace(b'"int64"', b'"uint64"'), ARRAY),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_seen_and_written_anew(damage: str, log_probs: Make, tmp_path: Path, monkeypatch: Any) -> None:
    """Wherever it is, the source's rows and targets are those that were dumped, or there is an error."""
    monkeypatch.setattr(base, "BLOCK_BYTES", SMALL)
    source, (file, change, sentence) = open_source(log_probs(18, 8)), DAMAGE[damage]
    source.targets = np.arange(18) % 8
    store = dump(source, tmp_path / "s.zarr")
    whole = tree(store)
    change(store / file)
    for read in (rank, kld, check):
        with pytest.raises(StoreError, match=sentence):
            read(store)
    dump(source, store)
    assert tree(store) == whole
    np.testing.assert_array_equal(open_source(store).targets, source.targets)


def test_how_a_path_is_spelled_is_no_difference(runs: dict[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    store = dump(open_source(runs["softmax"]), tmp_path / "s.zarr")
    before = tree(store)
    monkeypatch.chdir(runs["softmax"].parent)
    dump(open_source(Path(runs["softmax"].name)), store)
    assert tree(store) == before


def test_nan_is_not_written(log_probs: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a broken model, which nothing has checked before."""
    source = open_source(log_probs(18, 8))
    blocks = MatrixSource.blocks

    def with_nan(self: MatrixSource, *args: Any, **options: Any) -> Iterator[base.Block]:
        for block in blocks(self, *args, **options):
            rows = block.log_probs.copy()
            if block.start <= 9 < block.start + len(rows):
                rows[9 - block.start, 3] = np.nan
            yield base.Block(block.start, rows)

    monkeypatch.setattr(MatrixSource, "blocks", with_nan)
    with pytest.raises(MatrixError, match=r"array holds nan at row 9, column 3"):
        dump(source, tmp_path / "s.zarr")


def test_a_store_of_something_else_is_left_alone(stored: Path, log_probs: Make, runs: Any, tmp_path: Path) -> None:
    mos = runs["mos"]
    run = dump(open_source(mos), tmp_path / "run.zarr")
    for store, other, difference in (
        (stored, open_source(log_probs(18, 8, seed=1)), r"another \w+, by the checksum"),
        (stored, open_source(log_probs(17, 8)), "contexts 18, not 17"),
        (stored, open_source(log_probs(18, 9)), "vocab 8, not 9"),
        (stored, open_source(log_probs(18, 8), kind="matrix"), "kind 'log-probs', not 'matrix'"),
        (run, open_source(runs["softmax"]), "head 'mos'"),
        (run, open_source(mos, split="valid"), "split 'test'"),
        (run, open_source(mos, dtype="float64"), "dtype 'float32'"),
    ):
        before = tree(store)
        with pytest.raises(StoreError, match=f"holds another dump: {difference}.*; name another place"):
            dump(other, store)
        assert tree(store) == before


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a file in it": lambda path: (path / "notes.txt").write_text("mine"),
    "an array": lambda path: zarr.save_array(path, np.ones((2, 2))),
    "a group": lambda path: zarr.create_group(store=path, attributes={"mine": 1}, zarr_format=3),
    "a group of Zarr 2": lambda path: zarr.create_group(store=path, zarr_format=2),
    "half a group": lambda path: (path / "zarr.json").write_text("{}"),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_folder_is_left_alone(log_probs: Make, tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "s.zarr"
    path.mkdir()
    make(path)
    before = tree(path)
    assert before
    with pytest.raises(StoreError, match=r"s\.zarr is not empty and does not hold a store; name another place"):
        dump(open_source(log_probs()), path)
    with pytest.raises(BottleneckError):
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
