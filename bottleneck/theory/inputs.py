"""Checks and conversion of arrays and tensors that the functions of `theory` accept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MatrixError
from ..spectrum.blocks import as_array, checked

Floats = NDArray[np.float64]

SUM_TOLERANCE = 1e-6
"""Largest difference from 1 of the sum of a context's probabilities: the roundoff of float32 over many tokens."""
EPS = float(np.finfo(np.float64).eps)


def real_matrix(values: Any, what: str) -> Floats:
    """Return a two-dimensional array or tensor of finite real numbers in float64, or raise `MatrixError`."""
    (matrix,) = checked([as_array(values)], what=what)
    return matrix.astype(np.float64)


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
    array = as_array(values)
    P = real_matrix(array[None] if array.ndim == 1 else array, "the matrix of probabilities")
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
