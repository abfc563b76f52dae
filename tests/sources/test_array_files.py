"""Matrices in the files that people keep them in."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import torch
from numpy.typing import NDArray

import softmax_bottleneck as sb
from softmax_bottleneck import BottleneckError
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.sources.array_files import READERS

LOG_PROBS: NDArray[np.float64] = np.log(np.random.default_rng(0).dirichlet(np.ones(5), 7))


def _hdf5(path: Path, **arrays: NDArray[Any]) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


WRITERS: dict[str, Callable[[Path], object]] = {
    ".npz": lambda path: np.savez(path, matrix=LOG_PROBS, step=np.array(3)),
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
    source = open_source(str(path))
    assert np.concatenate([block.log_probs for block in source.blocks()]) == pytest.approx(LOG_PROBS, rel=1e-15)


@pytest.mark.parametrize("suffix", READERS)
def test_a_suffix_may_have_upper_case(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"matrix{suffix}"
    WRITERS[suffix](path)
    shouted = path.rename(path.with_suffix(suffix.upper()))
    assert np.concatenate([block.log_probs for block in open_source(str(shouted)).blocks()]) == pytest.approx(LOG_PROBS)


@pytest.mark.parametrize("layout", [{}, {"index": False}, {"index": False, "header": False}, {"index_label": ""}])
def test_a_table_of_pandas_is_its_numbers(layout: dict[str, Any], tmp_path: Path) -> None:
    pd.DataFrame(LOG_PROBS).to_csv(tmp_path / "m.csv", **layout)
    assert open_source(str(tmp_path / "m.csv")).shape == LOG_PROBS.shape


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_float32_keeps_its_precision(suffix: str, tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / f"m{suffix}"
    logits = (rng.standard_normal((200, 10)) @ rng.standard_normal((10, 90))).astype(np.float32)
    table = pd.DataFrame(logits).rename(columns=str)
    table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    report = sb.rank(path, kind="logits")
    assert (report.eps.dtype, report.rank.value, report.rank.determinate) == ("float32", 11, True)


def test_numbers_cut_off_at_four_decimals_are_not_float32(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((200, 10)) @ rng.standard_normal((10, 90))).astype(np.float32)
    np.savetxt(tmp_path / "m.csv", logits, fmt="%.4f", delimiter=",")
    found = sb.rank(tmp_path / "m.csv", kind="logits").rank
    assert not found.determinate
    assert found.low <= 11


def test_a_table_of_words_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0]}).to_parquet(tmp_path / "m.parquet")
    with pytest.raises(BottleneckError, match="its columns are not all numbers"):
        open_source(str(tmp_path / "m.parquet"))


def test_a_matlab_file_of_version_7_3_is_hdf5_with_columns_first(tmp_path: Path) -> None:
    path = tmp_path / "matrix.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["matrix"] = LOG_PROBS.T
    with path.open("r+b") as opened:
        opened.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    assert open_source(str(path)).shape == LOG_PROBS.shape


@pytest.mark.parametrize(
    ("suffix", "name", "shape"), [(".npz", "matrix", (7, 5)), (".pth", "matrix", (7, 5)), (".hdf5", "runs/a", (7, 5))]
)
def test_an_array_is_named_after_a_colon(suffix: str, name: str, shape: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / f"matrix{suffix}"
    WRITERS[suffix](path)
    assert open_source(f"{path}:{name}").shape == shape
    with pytest.raises(BottleneckError, match=r"there is no 'other'; name one of them as .*:NAME: "):
        open_source(f"{path}:other")


def test_two_matrices_need_a_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=LOG_PROBS, b=LOG_PROBS)
    with pytest.raises(BottleneckError, match=r"two.npz holds 2 arrays; name a matrix as .*two.npz:NAME: a, b$"):
        open_source(str(tmp_path / "two.npz"))


class _Object:
    pass


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    torch.save({"model": _Object()}, tmp_path / "model.pt")
    with pytest.raises(BottleneckError, match=r"it holds more than tensors; save the tensor alone by torch\.save"):
        open_source(str(tmp_path / "model.pt"))
    np.savez(tmp_path / "objects.npz", a=np.array([_Object()], dtype=object))
    with pytest.raises(BottleneckError, match=r"objects.npz cannot be read as a .npz file: "):
        open_source(str(tmp_path / "objects.npz"))


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("damage", [b"", b"\x00" * 99, "½ cup".encode("latin-1")])
def test_damaged_files(suffix: str, damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"matrix{suffix}"
    path.write_bytes(damage)
    with pytest.raises(BottleneckError) as caught:
        open_source(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_cut_short(tmp_path: Path) -> None:
    for suffix, write in WRITERS.items():
        path = tmp_path / f"cut{suffix}"
        write(path)
        if suffix not in (".csv", ".tsv"):  # a text file may end anywhere
            path.write_bytes(path.read_bytes()[:-40])
            with pytest.raises(BottleneckError, match=f"cut{suffix} "):
                open_source(str(path))


def test_text_in_a_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,two\n", encoding="utf-8")
    with pytest.raises(BottleneckError, match=r"t.csv cannot be read as a .csv file: could not"):
        open_source(str(tmp_path / "t.csv"))


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS[".h5"](tmp_path / "m.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(BottleneckError, match=r"reading .*m.h5 needs h5py: pip install h5py"):
        open_source(str(tmp_path / "m.h5"))


def test_other_formats_come_with_the_line_that_converts_them(tmp_path: Path) -> None:
    path = tmp_path / "m.pkl"
    pd.to_pickle(LOG_PROBS, path)
    with pytest.raises(BottleneckError, match="files are not read; convert it in Python by: ") as caught:
        open_source(str(path))
    line = str(caught.value).rpartition("by: ")[2].replace("'matrix.npy'", repr(str(tmp_path / "matrix.npy")))
    with pytest.warns(ResourceWarning):
        exec(line, {"np": np, "pickle": __import__("pickle")})
    assert open_source(str(tmp_path / "matrix.npy")).shape == (7, 5)


def test_a_zip_file_that_is_no_npz(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("readme.txt", "hello")
    with pytest.raises(BottleneckError, match=r"a.npz"):
        open_source(str(tmp_path / "a.npz"))


def test_a_models_configuration_is_no_matrix(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BottleneckError, match=rf"is the configuration of a model: give its folder, {tmp_path}"):
        sb.rank(tmp_path / "config.json")


def test_names_that_are_left_out_are_hinted_at(tmp_path: Path) -> None:
    for count, end in ((8, "a7"), (9, "a7, …")):
        np.savez(tmp_path / "many.npz", **{f"a{number}": np.eye(3) for number in range(count)})
        with pytest.raises(BottleneckError, match=rf"{end}$"):
            sb.rank(tmp_path / "many.npz")
