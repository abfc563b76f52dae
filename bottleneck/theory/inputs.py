"""Checks and conversion of arrays and tensors that the functions of `theory` accept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..errors import MatrixError
from ..spectrum.blocks import as_array, checked, native_dtype
from ..spectrum.precision import EPS as OF_TYPE
from ..spectrum.precision import ROUNDINGS, precision

Floats = NDArray[np.float64]

SUM_TOLERANCE = 1e-6
"""Largest difference from 1 of the sum of a context's probabilities: the roundoff of float32 over many tokens."""
EPS = float(np.finfo(np.float64).eps)


def real_matrix(values: Any, what: str, *, masked: bool = False) -> Floats:
    """Return a matrix of finite real numbers in float64, or with ``masked`` also −∞, or raise `MatrixError`."""
    (matrix,) = checked([as_array(values)], what=what, minus_inf=masked)
    return matrix.astype(np.float64)


def roundoff(eps: str | float | None, *values: Any) -> float:
    """Return a relative roundoff: that of a type's name, a number, or ``None`` for the coarsest type of some values."""
    if eps is None:
        return max(OF_TYPE.get(native_dtype(each), EPS) for each in values)
    return precision(eps).value


def scaled(values: Floats) -> tuple[Floats, int]:
    """Return values times 2^−e, which are 1 at most, and e: nothing is rounded, and no square over- or underflows."""
    exponent = int(np.frexp(abs(values[np.isfinite(values)]).max(initial=0.0))[1])
    return np.ldexp(values, -exponent), exponent


def real_vector(values: Any, size: int, what: str, *, masked: bool = False) -> Floats:
    """Return ``size`` finite real numbers in float64, or with ``masked`` also −∞, or raise `MatrixError`."""
    vector = as_array(values).astype(np.float64)
    if vector.shape != (size,):
        raise MatrixError(f"{what} must have shape ({size},), not {vector.shape}")
    wrong = vector[~(np.isfinite(vector) | (masked & np.isneginf(vector)))]
    if wrong.size:
        remedy = "give finite numbers" + (", or −∞ for a masked token" if masked else "")
        raise MatrixError(f"{what} holds {wrong[0]}: {remedy}")
    return vector


def distributions(values: Any, vocab: int) -> Floats:
    """Return probabilities (n, M) in float64, each row divided by its sum; one row may come as (M,)."""
    P = real_matrix(_rows(values), "the matrix of probabilities")
    if P.shape[1] != vocab:
        raise MatrixError(f"probabilities of {P.shape[1]} tokens do not fit embeddings of {vocab}: give one row each")
    sums = P.sum(1)
    wrong = np.flatnonzero((P < 0).any(1) | (abs(sums - 1) > SUM_TOLERANCE))
    if wrong.size:
        row = int(wrong[0])
        raise MatrixError(
            f"row {row} is not a distribution: its least entry is {P[row].min():.3g} and its sum {sums[row]:.9g}; "
            "give probabilities, not their logarithms"
        )
    return P / sums[:, None]


def log_distributions(values: Any) -> Floats:
    """Return log P, (n, M), in float64, normalized beyond its type; where P = 0 it is float64's least number."""
    log_p = real_matrix(_rows(values), "the matrix of log-probabilities", masked=True)
    sums = logsumexp(log_p, axis=1)
    wrong = np.flatnonzero(~(abs(sums) <= max(SUM_TOLERANCE, ROUNDINGS * roundoff(None, values))))
    if wrong.size:
        row = int(wrong[0])
        raise MatrixError(
            f"row {row} is not a distribution: log Σ P is {sums[row]:.3g}, not 0; give log-probabilities, as "
            "log_softmax returns them"
        )
    return np.maximum(log_p - sums[:, None], np.finfo(np.float64).min)


def _rows(values: Any) -> NDArray[Any]:
    """Return a matrix as it is, one row (M,) as a matrix."""
    array = as_array(values)
    return array[None] if array.ndim == 1 else array
