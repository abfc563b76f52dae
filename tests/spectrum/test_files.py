"""Spectra on disk."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck.errors import MatrixError, OutputError
from softmax_bottleneck.spectrum import Sketch, Spectrum, load_spectrum, measure, save_spectrum, singular_values

SOURCE = {"path": "runs/ä", "head": None}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    spectrum = singular_values(np.random.default_rng(0).standard_normal((5, 3)))
    save_spectrum(tmp_path / "s.npz", spectrum, SOURCE)
    return tmp_path / "s.npz"


def same(one: Spectrum, other: Spectrum) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("values", "centered", "shape", "method", "frobenius_relative_error", "residual", "error")
    )


@pytest.mark.parametrize("sketch", [False, True])
def test_round_trip(sketch: bool, tmp_path: Path) -> None:
    matrix = np.random.default_rng(1).standard_normal((60, 40))
    spectrum = measure([matrix], Sketch(40, width=8)) if sketch else singular_values(matrix, method="gram")
    save_spectrum(tmp_path / "s.npz", spectrum, SOURCE)
    loaded, source, _ = load_spectrum(tmp_path / "s.npz")
    assert same(loaded, spectrum)
    assert source == SOURCE
    assert (loaded.residual > 0) == sketch


def write(path: Path, *, about: Any = None, leave_out: str = "", **changes: Any) -> None:
    values = {"values": np.array([2.0, 1.0]), "centered": np.array([1.0, 0.0])}
    if about is None:
        about = {
            "format": "softmax-bottleneck spectrum 1",
            "source": {},
            "shape": [2, 5],
            "method": "dense",
            "frobenius_relative_error": 0.0,
        }
        about = {key: value for key, value in about.items() if key != leave_out}
    np.savez(path, **{**values, "about": np.array(json.dumps(about)), **changes})


@pytest.mark.parametrize(
    "damage",
    [
        {},  # without damage it loads
        {"leave_out": "source"},
        {"leave_out": "shape"},
        {"leave_out": "format"},
        {"about": {"format": "another"}},
        {"about": []},
        {"values": np.array([1.0, 2.0])},
        {"values": np.array([2.0, np.nan])},
        {"values": np.array([2.0, -1.0])},
        {"values": np.array([2.0])},
        {"centered": np.ones((2, 1))},
        {"centered": np.array([1, 0])},
        {"centered": np.array([None, None])},
    ],
    ids=repr,
)
def test_damaged_contents(tmp_path: Path, damage: dict[str, Any]) -> None:
    write(tmp_path / "s.npz", **damage)
    if not damage:
        assert load_spectrum(tmp_path / "s.npz").spectrum.values.tolist() == [2.0, 1.0]
        return
    with pytest.raises(MatrixError, match=r"s\.npz is not a spectrum of 'bottleneck rank --save-spectrum': ") as caught:
        load_spectrum(tmp_path / "s.npz")
    assert not any(word in str(caught.value) for word in ("'shape'", "archive", "indices", "pickle", "Errno"))


def array_bytes() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


@pytest.mark.parametrize("data", [b"", b"text", array_bytes(), b"PK\x03\x04 cut"], ids=["empty", "text", "npy", "zip"])
def test_other_files(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "s.npz").write_bytes(data)
    with pytest.raises(MatrixError, match="is not a spectrum"):
        load_spectrum(tmp_path / "s.npz")


def test_an_npz_of_a_matrix_is_named_by_what_it_holds(tmp_path: Path) -> None:
    np.savez(tmp_path / "lp.npz", log_probs=np.eye(3), targets=np.arange(3))
    with pytest.raises(MatrixError) as caught:
        load_spectrum(tmp_path / "lp.npz")
    assert str(caught.value).removeprefix(str(tmp_path)) == (
        "/lp.npz is not a spectrum of 'bottleneck rank --save-spectrum': it holds 'log_probs', 'targets'; "
        "a matrix in it is named FILE.npz:NAME"
    )


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"s\.npz is not a spectrum .*No such file"):
        load_spectrum(tmp_path / "s.npz")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*nowhere/s\.npz"):
        save_spectrum(tmp_path / "nowhere" / "s.npz", singular_values(np.eye(2)), SOURCE)


def test_every_flipped_byte_and_every_cut_is_noticed_or_harmless(saved: Path) -> None:
    whole = saved.read_bytes()
    expected, source, _ = load_spectrum(saved)
    damaged = [whole[:end] for end in range(0, len(whole), 11)]
    damaged += [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(0, len(whole), 2)]
    refused = 0
    for data in damaged:
        saved.write_bytes(data)
        try:
            loaded, about, _ = load_spectrum(saved)
        except MatrixError:
            refused += 1
        else:
            assert same(loaded, expected)
            assert about == source
    assert refused > len(damaged) / 2
