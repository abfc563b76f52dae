"""Effective ranks, which need no tolerance: the distribution of a spectrum's energy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigurationError, MatrixError
from .blocks import as_array

ENERGY_LEFT_OUT = ("1e-3", "1e-4", "1e-5")
"""The ε, as reports name them, of the ε-effective ranks that Parthiban, Mao and Inkpen (AAAI 2021) report."""


def effective_rank(singular_values: ArrayLike, *, epsilon: float, residual: float = 0.0) -> int | None:
    r"""Return the smallest k with :math:`\sum_{i≤k} σ_i^2 ≥ (1 - ε) \sum_i σ_i^2` (Parthiban et al. 2021).

    ``residual`` is the Frobenius norm of the part outside the values (`Spectrum.residual`). The result is ``None`` if
    the residual holds more than the share ε.

    Example:
        >>> effective_rank([10.0, 1.0, 0.1], epsilon=1e-3)
        2
    """
    if not 0 <= epsilon < 1:
        raise ConfigurationError(f"epsilon must be a share of the energy, in [0, 1), not {epsilon}")
    values = descending(singular_values)
    largest = values.max(initial=0.0)
    if largest == 0:
        return None if residual else 0
    energy, residual = (values / largest) ** 2, residual / largest
    total = energy.sum() + residual**2
    # Summing from the smallest value keeps the omitted energy exact for any ε.
    left_out = np.append(np.cumsum(energy[::-1])[::-1], 0.0) + residual**2
    enough = left_out <= epsilon * total
    return int(np.argmax(enough)) if enough.any() else None


def effective_ranks(singular_values: ArrayLike, *, residual: float = 0.0) -> dict[str, int | None]:
    """Return the ε-effective rank for each ε in `ENERGY_LEFT_OUT`; ``residual`` as in `effective_rank`."""
    return {name: effective_rank(singular_values, epsilon=float(name), residual=residual) for name in ENERGY_LEFT_OUT}


def entropy_rank(singular_values: ArrayLike) -> float:
    r"""Return :math:`\exp(-\sum p_i \log p_i)` with :math:`p = σ / \sum σ` (Roy and Vetterli 2007).

    Example:
        >>> round(entropy_rank([1.0, 1.0, 0.0]), 12)
        2.0
    """
    values = descending(singular_values)
    positive = values[values > 0]
    if positive.size == 0:
        return 0.0
    p = positive / positive.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def stable_rank(singular_values: ArrayLike, *, residual: float = 0.0) -> float:
    r"""Return :math:`\|A\|_F^2 / σ_1^2`; ``residual`` as in `effective_rank`.

    Example:
        >>> stable_rank([2.0, 2.0, 1.0])
        2.25
    """
    values = descending(singular_values)
    largest = values.max(initial=0.0)
    return float(((values / largest) ** 2).sum() + (residual / largest) ** 2) if largest > 0 else 0.0


def descending(singular_values: ArrayLike) -> NDArray[np.float64]:
    """Return (n,) singular values in descending order; `MatrixError` if they are not singular values."""
    values = as_array(singular_values).astype(np.float64)
    if values.ndim != 1 or not (np.isfinite(values).all() and (values >= 0).all()):
        raise MatrixError("singular values must be one-dimensional, finite and not negative")
    return np.sort(values)[::-1]
