"""Fits of a power law to singular values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.checks import typed
from ..errors import ConfigurationError, MatrixError
from ..spectrum.blocks import as_array


@dataclass(frozen=True)
class PowerLaw:
    """σ_i ≈ scale · i^(−exponent) over first ≤ i ≤ last."""

    exponent: float
    scale: float
    standard_error: float
    """Standard error of the exponent."""
    low: float
    """Lower end of the exponent's 95 % confidence interval, which ends at ``high``."""
    high: float
    first: int
    """First index of the fit, counted from 1."""
    last: int
    r_squared: float
    """Share of the variance of log σ that the line explains."""


@typed
def power_law(sigma: Any, *, first: int = 1, last: int | None = None) -> PowerLaw:
    r"""Fit :math:`\log σ_i = c - α \log i` by least squares, as for extended logit matrices (arXiv 2510.24966).

    The interval is Student's t of the residuals. Neighbouring singular values are not independent, so it is too narrow
    if they follow a power law only approximately; `extended_structure` resamples the matrix instead.

    Args:
        sigma: singular values, in any order; those in the fitted range must be positive.
        first: first index of the fit, from 1.
        last: last index; by default half of the values.

    Example:
        >>> round(power_law(5 * np.arange(1, 101.0) ** -0.54).exponent, 6)
        0.54
    """
    values = np.sort(as_array(sigma).astype(np.float64).ravel())[::-1]
    last = max(3, len(values) // 2) if last is None else last
    if not 1 <= first <= last - 2 or last > len(values):
        raise ConfigurationError(
            f"a fit needs a range of at least three of the {len(values)} values, not {first} to {last}"
        )
    fitted = values[first - 1 : last]
    if not (np.isfinite(fitted).all() and (fitted > 0).all()):
        raise MatrixError("a power law is fitted to finite singular values above 0: end the range before the zeros")
    from scipy.stats import linregress, t

    line = linregress(np.log(np.arange(first, last + 1)), np.log(fitted))
    is_flat = fitted[0] == fitted[-1]  # the line is exact, and linregress divides 0 by 0
    error, r_squared = (0.0, 1.0) if is_flat else (float(line.stderr), float(line.rvalue**2))
    exponent, scale = 0.0 - float(line.slope), float(np.exp(line.intercept))
    width = float(t.ppf(0.975, len(fitted) - 2)) * error
    return PowerLaw(exponent, scale, error, exponent - width, exponent + width, first, last, r_squared)
