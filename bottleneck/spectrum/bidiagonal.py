"""Reduce a matrix to bidiagonal form, and compute the singular values of a bidiagonal matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import lapack

Values = NDArray[np.float64]


def bidiagonal(matrix: Values) -> tuple[Values, Values]:
    """Reduce a square matrix by ``gebrd``; return the diagonal, (M,), and the superdiagonal, (M − 1,).

    Args:
        matrix: float64, (M, M), Fortran order; it is overwritten.
    """
    size = matrix.shape[0]
    diagonal, above = np.empty(size), np.empty(max(size - 1, 0))
    left, right = np.empty(size), np.empty(size)
    lapack.call_with_workspace("dgebrd", size, size, matrix, max(size, 1), diagonal, above, left, right)
    return diagonal, above


def bidiagonal_values(diagonal: Values, beside: Values, *, lower: bool = False) -> Values:
    """Return the singular values of a square bidiagonal matrix by ``bdsqr``: without vectors, Fernando and Parlett's
    dqds, each value to full relative accuracy.

    Args:
        diagonal: float64, (M,).
        beside: float64, (M − 1,), the superdiagonal, or the subdiagonal if ``lower``.
        lower: whether the matrix is lower bidiagonal.
    """
    values, other, unused = diagonal.copy(), np.append(beside, 0.0), np.empty(1)
    size = values.size
    lapack.call("dbdsqr", b"L" if lower else b"U", size, 0, 0, 0, values, other, unused, 1, unused, 1, unused, 1,
                np.empty(4 * size))  # fmt: skip
    return values
