"""Reduce a symmetric matrix to tridiagonal form, at the rate of matrix products if LAPACK supports it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dsytrd, dsytrd_lwork

from . import lapack

Values = NDArray[np.float64]

BAND = 48
"""Diagonals below the main one that the first stage leaves."""
SMALLEST = 3000
"""Columns from which two stages are faster than one: a smaller matrix stays in cache."""


def tridiagonal(matrix: Values) -> tuple[Values, Values, str]:
    r"""Return the diagonal, (M,), the subdiagonal, (M − 1,), and the name of the routines.

    The result is :math:`Q^⊤ A Q` with an orthogonal Q that keeps the first axis. So the result without its first row
    and column is a tridiagonal form of A without its first row and column.

    There are two stages (Bischof, Lang and Sun 2000): the first reduces A to a band with matrix products, and the
    second works on the band alone. A single stage (``sytrd``) reads the remaining matrix for each column, M³/6 numbers
    in total, and memory bandwidth limits it.

    Args:
        matrix: float64, (M, M), Fortran order; its lower triangle is overwritten, the upper one is unchanged.
    """
    if len(matrix) >= SMALLEST:
        try:
            return *_two_stages(matrix), "sytrd_2stage"
        except LookupError:
            pass
    work = int(dsytrd_lwork(len(matrix), lower=1)[0])
    _, diagonal, below, _, info = dsytrd(matrix, lower=1, lwork=work, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError(f"sytrd refused its argument {-info}")
    return diagonal, below, "sytrd"


def _two_stages(matrix: Values) -> tuple[Values, Values]:
    size = len(matrix)
    band, reflectors = np.zeros((BAND + 1, size), order="F"), np.empty(size)
    lapack.call_with_workspace("dsytrd_sy2sb", b"L", size, BAND, matrix, size, band, BAND + 1, reflectors)
    diagonal, below = np.empty(size), np.empty(size - 1)
    second = ("dsytrd_sb2st", b"Y", b"N", b"L", size, BAND, band, BAND + 1, diagonal, below)
    reflections, work = np.empty(1), np.empty(1)
    lapack.call(*second, reflections, -1, work, -1)  # asks for the lengths of both
    reflections, work = np.empty(int(reflections[0])), np.empty(int(work[0]))
    lapack.call(*second, reflections, reflections.size, work, work.size)
    return diagonal, below
