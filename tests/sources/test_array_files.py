"""Matrices in the files that people keep them in."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

import softmax_bottleneck as sb
from softmax_bottleneck import BottleneckError
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.sources.array_files import READERS

from .conftest import rows_of

LOG_PROBS: NDArray[np.float64] = np.log(np.random.default_rng(0).dirichlet(np.ones(5), 7))


def _hdf5(path: Path, **arrays: NDArray[Any]) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


WRITERS: dict[str, Callable[[Path], object]] = {
    ".npy": lambda path: np.save(path, LOG_PROBS),
    ".safetensors": lambda path: save_file({"matrix": torch.from_numpy(LOG_PROBS), "bias": torch.zeros(5)}, path),
    ".npz": lambda path: np.savez(path, matrix=LOG_PROBS, step=np.array(3), names=np.array([{}], object)),
    ".pt": lambda path: torch.save(torch.from_numpy(LOG_PROBS), path),
    ".pth": lambda path: torch.save({"matrix": torch.from_numpy(LOG_PROBS), "bias": torch.zeros(5)}, path),
    ".csv": lambda path: pd.DataFrame(LOG_PROBS).to_csv(path, index=False, header=False),
    ".tsv": lambda path: pd.DataFrame(LOG_PROBS, columns=list("abcde")).to_csv(path, index=False, sep="\t"),
    ".mat": lambda path: scipy.io.savemat(path, {"matrix": LOG_PROBS}),
    ".parquet": lambda path: pd.DataFrame(LOG_PROBS, columns=list("abcde")).to_parquet(path),
    ".h5": lambda path: _hdf5(path, matrix=LOG_PROBS),
    ".hdf5": lambda path: _hdf5(path, **{"runs/a": LOG_PROBS, "steps": np.arange(3)}),
}


@pytest.mark.parametrize("suffix", READERS)
def test_every_format_gives_the_numbers_that_were_written(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"matrix{suffix}"
    WRITERS[suffix](path)
    shouted = path.with_name(f"shouted{suffix.upper()}")
    shutil.copy(path, shouted)
    for name in (path, shouted):
        source = open_source(str(name))
        assert rows_of(source, 3) == pytest.approx(LOG_PROBS, rel=1e-15)


@pytest.mark.parametrize("layout", [{}, {"index": False}, {"index": False, "header": False}, {"index_label": ""}])
def test_a_table_of_pandas_is_its_numbers(layout: dict[str, Any], tmp_path: Path) -> None:
    pd.DataFrame(LOG_PROBS).to_csv(tmp_path / "m.csv", **layout)
    assert open_source(str(tmp_path / "m.csv")).shape == LOG_PROBS.shape


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(LOG_PROBS, dtype="Float64"),
        pd.DataFrame({"rows": [*LOG_PROBS]}),
        pd.DataFrame({"text": ["a", "b", "c", "d", "e", "f", "g"], "rows": [*LOG_PROBS], "target": range(7)}),
    ],
)
def test_other_columns_of_a_table_are_numbers_too(table: pd.DataFrame, tmp_path: Path) -> None:
    """Its columns have pandas' type for missing numbers, or one of them holds a list for each context."""
    table.rename(columns=str).to_parquet(tmp_path / "m.parquet")
    assert (rows_of(open_source(str(tmp_path / "m.parquet")), 3) == LOG_PROBS).all()


SIGNS = ["#", "C#", "\n", "# a", ","]


@pytest.mark.parametrize("labels", [{"index": SIGNS}, {"columns": SIGNS}, {"columns": [7, 3, 100, 5, 6]}])
def test_a_label_is_not_a_comment_or_a_number(labels: dict[str, Any], tmp_path: Path) -> None:
    pd.DataFrame(LOG_PROBS[:5], **labels).to_csv(tmp_path / "m.csv")
    assert rows_of(open_source(str(tmp_path / "m.csv")), 5) == pytest.approx(LOG_PROBS[:5], rel=1e-15)


def test_comments_before_and_after_the_numbers(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "m.csv", LOG_PROBS, delimiter=",", header="model x\na,b,c,d,e", footer="the end, at last")
    assert rows_of(open_source(str(tmp_path / "m.csv")), 3) == pytest.approx(LOG_PROBS, rel=1e-15)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_index_of_few_contexts_is_not_a_token(suffix: str, tmp_path: Path) -> None:
    table = pd.DataFrame(LOG_PROBS[:4]).rename(columns=str).rename_axis("context").reset_index()
    table.to_csv(tmp_path / "m.csv", index=False)
    table.to_parquet(tmp_path / "m.parquet")
    with pytest.raises(BottleneckError, match="column 0, context, holds whole numbers and others do not"):
        open_source(str(tmp_path / f"m{suffix}"), kind="logits")


@pytest.mark.parametrize("measure", [partial(sb.rank, kind="logits"), sb.singular_values])
def test_blocks_of_tables_are_tables(measure: Any, tmp_path: Path) -> None:
    """The index of a table is not a token, whole or in blocks; columns that ids name stand in their order."""
    pd.DataFrame(logits := np.random.default_rng(0).standard_normal((40, 5))).to_csv(tmp_path / "m.csv")
    whole = pd.read_csv(tmp_path / "m.csv")
    for blocks in (whole, [whole[:20], whole[20:]], iter([whole[:20], whole[20:]])):
        with pytest.raises(BottleneckError, match="column 0, Unnamed: 0, holds whole numbers and others do not"):
            measure(blocks)
    table = pd.DataFrame(logits)[[3, 0, 4, 1, 2]]
    assert rows_of(open_source([table[:20], table[20:]], kind="matrix"), 40) == pytest.approx(logits)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_float32_keeps_its_precision(suffix: str, tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / f"m{suffix}"
    logits = (rng.standard_normal((200, 10)) @ rng.standard_normal((10, 90))).astype(np.float32)
    table = pd.DataFrame(logits).rename(columns=str)
    if suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, float_format="%.9g" if suffix == ".tsv" else None)
    report = sb.rank(path, kind="logits")
    assert (report.eps.dtype, report.rank.value, report.rank.determinate) == ("float32", 11, True)


class _Object:
    pass


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "hello")


def _eyes(count: int) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **{f"a{number}": np.eye(3) for number in range(count)})


def _old_torch(path: Path) -> None:
    """Write a file as torch did before version 1.6, with another key of the numbers than the tensor's."""
    torch.save(torch.eye(4), path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    keys = re.findall(rb"\d{10,}", data)
    before, key, after = data.rpartition(keys[-1])
    path.write_bytes(before + b"1" * len(key) + after)


def _torch(value: Any) -> Callable[[Path], object]:
    return lambda path: torch.save(value, path)


def _saved(array: NDArray[Any]) -> bytes:
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, encoding="utf-8")


WORDS = pd.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0]})
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n"
OBJECTS = np.array([[_Object()]])
REFUSED: list[tuple[str, Callable[[Path], object], str]] = [
    ("m.parquet", lambda path: WORDS.to_parquet(path), "the column .* holds .*, not numbers: convert it"),
    ("m.parquet", lambda path: path.write_bytes(b"PAR1" + bytes(40)), "cannot be read as a .parquet"),
    ("m.parquet", lambda path: pd.DataFrame({"a": [[1.0], [1.0, 2.0]]}).to_parquet(path), "the column a holds object"),
    ("m.mat:S", lambda path: scipy.io.savemat(path, {"S": {"a": 1}}), "S of .* is a struct, cell or object of MATLAB:"),
    ("m.csv", _text("a,b\n1,two\n"), r"field 2 of row 1 of its numbers is .two., which is not a number"),
    ("m.csv", _text(""), "it does not hold numbers"),
    ("m.npz:other", WRITERS[".npz"], r"there is no 'other'; name one of them as .*m.npz:NAME: "),
    ("m.pth:other", WRITERS[".pth"], "there is no 'other'; name one of them as"),
    ("m.npz", _eyes(2), r"m.npz holds 2 arrays; name a matrix as .*m.npz:NAME: a0, a1$"),
    ("m.npz", _eyes(8), "a7$"),
    ("m.npz", _eyes(9), "a7, …$"),
    ("m.pt", _torch({"model": _Object()}), "holds Python objects: save the array alone"),
    ("m.npz", lambda path: np.savez(path, a=OBJECTS), r"as a \.npz file: "),
    ("m.npz", _zip, r"m\.npz does not hold an array"),
    ("config.json", _text("{}"), "configuration of a model: give its folder"),
    ("m.pt", _old_torch, r"m\.pt cannot be read as a \.pt file: storage key"),
    ("m.pt:a.b", _torch({"a": {"b": torch.eye(3)}, "a.b": torch.eye(4)}), "two of its tensors have one name"),
    *((f"m{suffix}", _text(POINTER), "Git LFS .* run 'git lfs pull' in its folder$") for suffix in READERS),
    ("m.npy", _text("a text of words"), "it is of another kind, or holds Python"),
    (
        "m.npy",
        lambda path: path.write_bytes(_saved(LOG_PROBS) + bytes(8)),
        "it is longer than its header says, which has",
    ),
    ("m.npy", lambda path: path.write_bytes(_saved(LOG_PROBS)[:-8]), "cannot be read as a .npy file"),
    ("m.pt", _torch(torch.eye(4).to_sparse()), "is a sparse, quantized"),
    ("m.pt", _torch(torch.empty(4, 4, device="meta")), "quantized or empty"),
    ("m.h5", lambda path: _hdf5(path, a=np.bytes_("text")), "must have two dimensions"),
    ("m.npy", lambda path: np.save(path, np.zeros((4, 4), "V2")), "which is bfloat16 without its type"),
    ("m.npz", lambda path: np.savez(path, np.zeros((4, 4), "V1")), "which is float8_e4m3fn without its type"),
]


@pytest.mark.parametrize(("name", "write", "sentence"), REFUSED)
def test_what_is_not_a_matrix_is_named(
    name: str, write: Callable[[Path], object], sentence: str, tmp_path: Path
) -> None:
    write(tmp_path / name.partition(":")[0])
    with pytest.raises(BottleneckError, match=sentence):
        open_source(str(tmp_path / name), kind="matrix")


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS[".h5"](tmp_path / "m.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(BottleneckError, match=r"reading .*m.h5 needs h5py: pip install h5py"):
        open_source(str(tmp_path / "m.h5"))


def _outside(path: Path) -> None:
    """Write datasets whose entries are not, or not all, in the file."""
    secret = path.with_name("secret.bin")
    secret.write_bytes(np.eye(4).tobytes())
    with h5py.File(path.with_name("other.h5"), "w") as other:
        other["a"] = np.eye(4)
    layout = h5py.VirtualLayout((4, 4), "f8")
    layout[:] = h5py.VirtualSource(path.with_name("other.h5"), "a", (4, 4))
    with h5py.File(path, "w") as file:
        file.create_dataset("external", (4, 4), "f8", external=[(str(secret), 0, 128)])
        file.create_virtual_dataset("virtual", layout)
        file["link"] = h5py.ExternalLink("other.h5", "a")
        file["soft"] = h5py.SoftLink("/link")
        file.create_dataset("unwritten", (40_000, 40_000), "f8")
        file.create_dataset("chunked", (4, 4), "f8", chunks=(2, 2))[:2] = 1.0
        file["loop"] = file["/"]
        file["inside/a"] = np.ones((4, 3))


@pytest.mark.parametrize("suffix", [".h5", ".mat"])
def test_hdf5_is_read_from_the_file_alone(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    _outside(tmp_path / "m.h5")
    if suffix == ".mat":
        header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
        path.write_bytes(header.ljust(512, b"\0") + (tmp_path / "m.h5").read_bytes())
    for why, names in {
        "is a view of other files": ("external", "virtual"),
        "is a link": ("link", "soft"),
        "were never written": ("unwritten", "chunked"),
    }.items():
        for name in names:
            with pytest.raises(BottleneckError, match=why):
                open_source(f"{path}:{name}", kind="matrix")
    expected = (3, 4) if suffix == ".mat" else (4, 3)  # version 7.3 of MATLAB is HDF5 with columns first
    assert open_source(f"{path}:inside/a", kind="matrix").shape == expected


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_a_sparse_matrix_of_matlab_is_read_as_a_full_one(version: str, tmp_path: Path) -> None:
    path, expected = tmp_path / "m.mat", np.where(np.arange(20).reshape(4, 5) % 3 == 1, LOG_PROBS[:4], 0.0)
    stored = scipy.sparse.csc_matrix(expected)
    if version == "5":
        scipy.io.savemat(path, {"a": stored})
    else:
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, rows in (("a", 4), ("damaged", 2), ("empty", 4)):
                file.create_group(name).attrs["MATLAB_sparse"] = np.uint64(rows)
                for key, part in (("data", stored.data), ("ir", stored.indices), ("jc", stored.indptr)):
                    if name != "empty" or key == "jc":
                        file[f"{name}/{key}"] = part * (name != "empty")
            file["text"] = np.arange(3, dtype="u2")[:, None]
            file["text"].attrs["MATLAB_class"] = np.bytes_("char")
        data = bytearray(path.read_bytes())
        data[:128] = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
        path.write_bytes(data)
        for name, why in (("damaged", "cannot be read as a .mat file"), ("text", "text is a char of MATLAB")):
            with pytest.raises(BottleneckError, match=why):
                open_source(f"{path}:{name}", kind="matrix")
        (rows,) = open_source(f"{path}:empty", kind="matrix").blocks()
        assert not rows.log_probs.any()
    (rows,) = open_source(f"{path}:a", kind="matrix").blocks()
    np.testing.assert_array_equal(rows.log_probs, expected)


def test_a_damaged_matlab_file_is_refused_and_ends_no_process(tmp_path: Path) -> None:
    path = tmp_path / "m.mat"
    scipy.io.savemat(path, {"file": np.eye(4), "text": "a"})
    original = path.read_bytes()
    inner_type = original.index(np.eye(4).tobytes()) - 8
    for at, value in ((inner_type, 99), (131, 255)):  # the first ends SciPy's process
        path.write_bytes(original[:at] + bytes([value]) + original[at + 1 :])
        with pytest.raises(BottleneckError, match=r"m\.mat cannot be read as a \.mat file: it is damaged"):
            open_source(f"{path}:file", kind="matrix")


@pytest.mark.parametrize(
    "text",
    [
        "1.5 2.5 3\n4 5 6.5\n",
        "1.5\t2.5\t3\n4\t5\t6.5\n",
        '"";"V1";"V2";"V3"\n"1";1,5;2,5;3\n"2";4;5;6,5\n',
        '"V1" "V2" "V3"\n"1" 1.5 2.5 3\n"2" 4 5 6.5\n',
        "1,5\t2,5\t3\r\n4\t5\t6,5\r\n",
        "# made by hand\na;b;c\n1.5;2.5;3\n4;5;6.5\n",
        "1.5, 2.5, 3\n4, 5, 6.5\n",
        "  1.5   2.5  3\n  4.0   5.0  6.5\n",
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_any_delimiter_is_read(text: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    path.write_bytes(text.encode())
    (block,) = open_source(str(path), kind="matrix").blocks()
    assert np.array_equal(block.log_probs, [[1.5, 2.5, 3], [4, 5, 6.5]])


def test_a_text_of_many_columns_is_read(tmp_path: Path) -> None:
    line = ",".join(["0.5"] * 50_000)
    (tmp_path / "m.csv").write_text(f"{line}\n{line}\n", encoding="utf-8")
    assert open_source(str(tmp_path / "m.csv"), kind="matrix").shape == (2, 50_000)


def test_tensors_at_any_depth_of_a_checkpoint_are_named(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    content: dict[str, Any] = {"model": {"_orig_mod.lm_head.weight": torch.eye(4)}, "steps": [torch.zeros(2, 2)]}
    content["model"]["again"] = content["model"]
    torch.save(content, path)
    assert open_source(f"{path}:model._orig_mod.lm_head.weight", kind="matrix").shape == (4, 4)
    with pytest.raises(BottleneckError, match=r"NAME: model\._orig_mod\.lm_head\.weight, steps\.0$"):
        open_source(str(path))


@pytest.mark.parametrize("make", [np.broadcast_to, lambda array, shape: torch.from_numpy(array).expand(shape)])
def test_entries_that_are_not_stored_are_refused(make: Callable[..., Any], tmp_path: Path) -> None:
    shape = (10**6, 10**6)
    with pytest.raises(BottleneckError, match=r"only .* bytes of it are stored"):
        open_source(make(np.zeros((1, 1)), shape))
    if isinstance(matrix := make(np.zeros((1, 1)), shape), torch.Tensor):
        torch.save(matrix, tmp_path / "m.pt")
        with pytest.raises(BottleneckError, match=r"only .* bytes of it are stored"):
            open_source(str(tmp_path / "m.pt"))


def test_a_damaged_hdf5_file_is_read_or_refused(tmp_path: Path) -> None:
    path, rng = tmp_path / "m.h5", np.random.default_rng(5)
    _hdf5(path, **{"a": LOG_PROBS, "g/x": np.eye(2)})
    original = path.read_bytes()
    for at, value in zip(rng.integers(0, len(original), 100), rng.integers(0, 256, 100), strict=True):
        path.write_bytes(original[:at] + bytes([value]) + original[at + 1 :])
        with suppress(BottleneckError):
            open_source(f"{path}:a", kind="matrix")


def _rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 0), lambda path: os.truncate(path, 300), _rewrite])
@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_a_file_that_changes_between_two_passes(suffix: str, change: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    WRITERS[suffix](path)
    source = open_source(path)
    list(source.blocks())
    change(path)
    with pytest.raises(BottleneckError, match="changed while it was read"):
        list(source.blocks())
