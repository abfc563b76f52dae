"""A spectrum on disk: one ``.npz`` without pickles."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ..core.files import DAMAGE, open_file, write_bytes
from ..core.json_file import Magnitude, Size, check_schema, parse_json
from ..errors import MatrixError
from .values import UNKNOWN, Limits, Spectrum

FORMAT: Literal["softmax-bottleneck spectrum 1"] = "softmax-bottleneck spectrum 1"
NUMBERS = ("frobenius_relative_error", "residual", "error", "centered_error")
"""Fields of a `Spectrum` that are kept as they are."""

LARGEST = 1 << 30
"""Bytes of the largest spectrum that is read, unpacked: eight of 16 million values."""


@dataclass(frozen=True)
class _About:
    """What is kept beside the singular values."""

    format: Literal["softmax-bottleneck spectrum 1"]
    source: dict[str, Any]
    shape: tuple[Size, Size]
    method: str
    frobenius_relative_error: Magnitude
    residual: Magnitude
    error: Magnitude
    centered_error: Magnitude
    limits: Limits = UNKNOWN


class SavedSpectrum(NamedTuple):
    """The content of a file that `write_spectra` wrote."""

    spectrum: Spectrum
    source: Mapping[str, Any]
    """The description of its source."""
    limits: Limits = UNKNOWN
    """Tolerances and bounds."""


class OtherArchiveError(MatrixError):
    """An archive holds other arrays."""


def write_spectra(path: Path, several: Iterable[SavedSpectrum]) -> None:
    """Write the singular values of several matrices, raw and centred, with their sources and what figures mark.

    The arrays of all but the first have numbered names.
    """
    arrays: dict[str, Any] = {}
    for place, (spectrum, source, limits) in enumerate(several):
        numbers = {name: getattr(spectrum, name) for name in NUMBERS}
        about = _About(FORMAT, dict(source), spectrum.shape, spectrum.method, **numbers, limits=limits)
        parts = {"values": spectrum.values, "centered": spectrum.centered, "about": np.array(json.dumps(asdict(about)))}
        arrays |= {f"{name}{place or ''}": part for name, part in parts.items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def load_spectra(path: str | Path) -> list[SavedSpectrum]:
    """Return the saved spectra of one matrix or several.

    Raises:
        MatrixError: when the file is missing, damaged, or not a saved spectrum (`OtherArchiveError` for other arrays).
    """
    wrong = f"{path} is not a spectrum of 'bottleneck rank --save-spectrum'"
    try:
        with open_file(Path(path)) as opened, np.load(opened, allow_pickle=False) as file:
            if sum(member.file_size for member in file.zip.infolist()) > LARGEST:
                raise ValueError(f"it unpacks to more than {LARGEST:,} bytes")
            if "about" not in file:
                arrays = ", ".join(map(repr, file)) or "no arrays"
                raise OtherArchiveError(f"{wrong}: it holds {arrays}; a matrix in it is named FILE.npz:NAME")
            ends = [name.removeprefix("about") for name in file if name.startswith("about")]
            return [_read(file, end) for end in ends]
    except OSError as error:
        raise MatrixError(f"{wrong}: {error.strerror or error}") from error
    except DAMAGE as error:
        raise MatrixError(f"{wrong}: it is damaged or of another kind; save the spectrum again") from error


def holds_spectra(path: str | Path) -> bool:
    """Return whether a file holds saved spectra, whole."""
    try:
        return bool(load_spectra(path))
    except MatrixError:
        return False


def _read(file: Mapping[str, Any], end: str) -> SavedSpectrum:
    """Return the spectrum whose arrays have names with this end."""
    about: _About = check_schema(parse_json(str(file[f"about{end}"]), finite=True), _About)
    numbers = {name: getattr(about, name) for name in NUMBERS}
    spectrum = Spectrum(file[f"values{end}"], file[f"centered{end}"], about.shape, about.method, **numbers)
    _check(spectrum)
    return SavedSpectrum(spectrum, about.source, about.limits)


def _check(spectrum: Spectrum) -> None:
    """Raise a `ValueError` where the values cannot be singular values of such a matrix."""
    most = min(spectrum.shape)
    for values in (spectrum.values, spectrum.centered):
        sizes = range(1, most + 1) if spectrum.residual else (most,)  # of a sketch, those that it saw
        if values.dtype != np.float64 or values.ndim != 1 or len(values) not in sizes:
            raise ValueError(f"it does not hold {most} singular values")
        if not (np.isfinite(values).all() and (values[-1:] >= 0).all() and (np.diff(values) <= 0).all()):
            raise ValueError("its singular values are not finite and descending")
