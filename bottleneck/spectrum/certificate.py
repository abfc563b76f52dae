"""The spectrum of a stream of rows, with its certificate: Σσ² = ‖A‖²_F, computed apart from the decomposition."""

from __future__ import annotations

import numpy as np
import torch

from ..errors import MatrixError, Parameter, first_line
from .arithmetic import Norms, Spectra
from .base import SpectrumMethod, Stream
from .values import Spectrum

LARGEST_RELATIVE_ERROR = 1e-9
"""Largest error of a certificate: float64 sums of up to 10⁹ squares agree to about 1e-12."""

SMALLEST_SQUARE = 1e-280
"""If ‖A‖²_F is between this and its inverse, its sum of squares neither underflowed nor overflowed."""


FAILURES: tuple[type[Exception], ...] = (
    np.linalg.LinAlgError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
    torch.OutOfMemoryError,
)
"""Errors of a decomposition that failed."""


def finish(method: SpectrumMethod, stream: Stream) -> Spectrum:
    """Return the spectrum of all rows given, with its certificate.

    A decomposition that fails, or whose certificate does not hold, is tried again by the arithmetic's next choice of
    routines.

    Raises:
        MatrixError: when every choice failed, or for numbers whose squares leave float64's range.
    """
    rows, squared, squared_means, not_zero = stream.totals.tolist()
    shape = int(rows), method.columns
    norms = _squarable(Norms(shape, squared, squared - method.columns * squared_means, bool(not_zero)))
    failures = []
    for arithmetic, careful in method.arithmetic.attempts():
        try:
            spectra = method.decompose(stream, arithmetic, careful=careful)
            return _certified(spectra, _squarable(spectra.norms or norms), method)
        except FAILURES as error:
            failures.append(first_line(error))
    raise MatrixError(
        f"the {method.name} decomposition failed ({'; then '.join(dict.fromkeys(failures))}); try another ",
        Parameter("method"),
    )


def _squarable(norms: Norms) -> Norms:
    if norms.has_numbers and not SMALLEST_SQUARE < norms.squared < 1 / SMALLEST_SQUARE:
        raise MatrixError(
            f"the matrix is too {'small' if norms.squared < 1 else 'large'} for its entries to be squared in "
            "float64: scale it; no rank depends on the scale"
        )
    return norms


def _certified(spectra: Spectra, norms: Norms, method: SpectrumMethod) -> Spectrum:
    """Return the spectrum, padded with zeros to min(T, M) values, when Σσ² + ρ² = ‖A‖²_F, raw and centred."""
    error = 0.0
    size, residual = min(norms.shape), spectra.residual
    padded = []
    for values, norm in ((spectra.raw, norms.squared), (spectra.centered, norms.centered_squared)):
        if not np.isfinite(values).all():
            raise np.linalg.LinAlgError(f"{spectra.driver} returned values that are not finite")
        # The error is relative to the raw norm, because a centred matrix may be zero up to roundoff.
        with np.errstate(over="ignore"):
            energy = float((values**2).sum()) + residual**2
        error = max(error, abs(energy - norm) / (norms.squared or SMALLEST_SQUARE))
        ordered = np.sort(values)[::-1][:size]
        padded.append(ordered if residual else np.pad(ordered, (0, size - ordered.size)))
    # Centring projects out one direction: for T ≥ M the last value is zero, and its computed value is roundoff.
    padded[1][norms.shape[1] - 1 :] = 0.0
    if error > LARGEST_RELATIVE_ERROR:
        raise np.linalg.LinAlgError(f"of {spectra.driver}, Σσ² differs from ‖A‖²_F by a factor of {error:.1e}")
    scales = spectra.scales or (padded[0].max(initial=0.0), padded[1].max(initial=0.0))
    relative_error = method.resolution * (1 + spectra.blocks) ** 0.5
    errors = [relative_error * float(scale) for scale in scales]
    return Spectrum(padded[0], padded[1], norms.shape, method.name, error, residual, spectra.driver, *errors)
