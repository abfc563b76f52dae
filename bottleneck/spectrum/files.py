"""A spectrum on disk: one ``.npz`` without pickles."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MatrixError
from ..files import write_bytes
from .base import Spectrum
from .registry import REGISTRY

FORMAT = "softmax-bottleneck spectrum 1"

DAMAGE = (OSError, EOFError, ValueError, LookupError, TypeError, SyntaxError, NotImplementedError, zipfile.BadZipFile)
"""Errors of NumPy and zipfile for files that are truncated, changed, or of another kind."""


def save_spectrum(path: Path, spectrum: Spectrum, source: Mapping[str, Any]) -> None:
    """Write the raw and centred singular values with the description of their source."""
    about = {
        "format": FORMAT,
        "source": dict(source),
        "shape": spectrum.shape,
        "method": spectrum.method,
        "frobenius_relative_error": spectrum.frobenius_relative_error,
        "residual": spectrum.residual,
        "error": spectrum.error,
        "centered_error": spectrum.centered_error,
    }
    buffer = io.BytesIO()
    np.savez(buffer, values=spectrum.values, centered=spectrum.centered, about=np.array(json.dumps(about)))
    write_bytes(path, buffer.getvalue())


def load_spectrum(path: Path) -> tuple[Spectrum, dict[str, Any]]:
    """Return a saved spectrum and the description of its source.

    Raises:
        MatrixError: when the file is missing, damaged, or no saved spectrum.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']!r}")
            source = dict(about["source"])
            spectrum = Spectrum(
                file["values"],
                file["centered"],
                (about["shape"][0], about["shape"][1]),
                about["method"],
                about["frobenius_relative_error"],
                about.get("residual", 0.0),
                # Spectra were saved without their error at first.
                error=about.get("error", REGISTRY[about["method"]].resolution * float(file["values"][0])),
                centered_error=about.get("centered_error", 0.0),
            )
            _check(spectrum)
    except DAMAGE as error:
        raise MatrixError(f"{path} is no spectrum written by 'bottleneck rank --save-spectrum': {error}") from error
    return spectrum, source


def _check(spectrum: Spectrum) -> None:
    for values in (spectrum.values, spectrum.centered):
        most = min(spectrum.shape)
        sizes = range(1, most + 1) if spectrum.residual else (most,)  # of a sketch, those that it saw
        if values.dtype != np.float64 or values.ndim != 1 or len(values) not in sizes:
            raise ValueError(f"it does not hold the {most} singular values of its matrix")
        if not (np.isfinite(values).all() and (values[-1:] >= 0).all() and (np.diff(values) <= 0).all()):
            raise ValueError("its singular values are not finite and descending")
