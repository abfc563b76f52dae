"""Spectra on disk."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck.errors import MatrixError, OutputError
from softmax_bottleneck.spectrum import Gram, RangeFinder, SavedSpectrum, decompose, load_spectra, write_spectra

SOURCE = {"path": "runs/ä", "head": None}


@pytest.mark.parametrize("sketch", [False, True])
def test_round_trip(sketch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.random.default_rng(1).standard_normal((60, 40))
    spectrum = decompose([matrix], RangeFinder(40, width=8) if sketch else Gram(40))
    write_spectra(tmp_path / "s.npz", [SavedSpectrum(spectrum, SOURCE)])
    ((loaded, source, _),) = load_spectra(tmp_path / "s.npz")
    for name in ("values", "centered", "shape", "method", "frobenius_relative_error", "residual", "error"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(spectrum, name))
    assert source == SOURCE
    assert (loaded.residual > 0) == sketch
    monkeypatch.setattr("softmax_bottleneck.spectrum.files.LARGEST", 9)
    with pytest.raises(MatrixError, match="it is damaged or of another kind; save"):
        load_spectra(tmp_path / "s.npz")
    with pytest.raises(OutputError, match=r"cannot write .*nowhere/s\.npz"):
        write_spectra(tmp_path / "nowhere" / "s.npz", [SavedSpectrum(spectrum, SOURCE)])


ABOUT = {"format": "softmax-bottleneck spectrum 1", "source": {}, "shape": [2, 5], "method": "dense"}
ABOUT |= dict.fromkeys(("frobenius_relative_error", "residual", "error", "centered_error"), 0.0)
DAMAGE: list[dict[str, Any]] = [
    *({"about": {key: value for key, value in ABOUT.items() if key != missing}} for missing in ("source", "shape")),
    {"about": {**ABOUT, "format": "another"}},
    {"about": []},
    *({"values": np.array(values)} for values in ([1.0, 2.0], [2.0, np.nan], [2.0, -1.0], [2.0])),
    *({"centered": values} for values in (np.ones((2, 1)), np.array([1, 0]), np.array([None, None]))),
]


@pytest.mark.parametrize("damage", [{}, *DAMAGE], ids=repr)
def test_damaged_contents(tmp_path: Path, damage: dict[str, Any]) -> None:
    values = {"values": np.array([2.0, 1.0]), "centered": np.array([1.0, 0.0]), "about": ABOUT, **damage}
    np.savez(tmp_path / "s.npz", **{**values, "about": np.array(json.dumps(values["about"]))})
    if not damage:
        assert load_spectra(tmp_path / "s.npz")[0].spectrum.values.tolist() == [2.0, 1.0]
        return
    with pytest.raises(MatrixError, match=r"s\.npz is not a spectrum of 'bottleneck rank --save-spectrum': ") as caught:
        load_spectra(tmp_path / "s.npz")
    assert not any(word in str(caught.value) for word in ("'shape'", "archive", "indices", "pickle", "Errno"))


def test_other_files(tmp_path: Path) -> None:
    file, array = tmp_path / "s.npz", io.BytesIO()
    np.save(array, np.ones(3))
    with pytest.raises(MatrixError, match=r"s\.npz is not a spectrum .*No such file"):
        load_spectra(file)
    for data in (b"", b"text", array.getvalue(), b"PK\x03\x04 cut"):
        file.write_bytes(data)
        with pytest.raises(MatrixError, match="is not a spectrum"):
            load_spectra(file)
    np.savez(file, log_probs=np.eye(3), targets=np.arange(3))
    with pytest.raises(MatrixError, match=r"it holds 'log_probs', 'targets'; a matrix in it is named FILE\.npz:NAME"):
        load_spectra(file)
