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

FORMAT = "softmax-bottleneck spectrum 1"


def save_spectrum(path: Path, spectrum: Spectrum, source: Mapping[str, Any]) -> None:
    """Write the singular values, raw and centred, with what they were measured on."""
    about = {
        "format": FORMAT,
        "source": dict(source),
        "shape": spectrum.shape,
        "method": spectrum.method,
        "frobenius_relative_error": spectrum.frobenius_relative_error,
    }
    buffer = io.BytesIO()
    np.savez(buffer, values=spectrum.values, centered=spectrum.centered, about=np.array(json.dumps(about)))
    write_bytes(path, buffer.getvalue())


def load_spectrum(path: Path) -> tuple[Spectrum, dict[str, Any]]:
    """Return a saved spectrum and the description of its source.

    Raises:
        MatrixError: when the file is missing, damaged, or something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']!r}")
            spectrum = Spectrum(
                file["values"],
                file["centered"],
                (about["shape"][0], about["shape"][1]),
                about["method"],
                about["frobenius_relative_error"],
            )
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise MatrixError(f"{path} is no spectrum written by 'bottleneck rank --save-spectrum': {error}") from error
    return spectrum, about["source"]
