"""Two spectra from one bidiagonalization: those of R and of R with each row's mean subtracted."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import cython_lapack

from ..errors import MatrixError
from .base import Matrix


def singular_values_and_centered(triangle: Matrix) -> tuple[Matrix, Matrix]:
    r"""Return the singular values of a square R and of :math:`R (I - 11^⊤/M)`.

    A reflection P takes the direction of all-ones to the first axis: :math:`R P = (c, R')` has the singular values
    of R, and R' those of the centred matrix. LAPACK's ``gebrd`` transforms the first column from the left only, so
    R P = U B Vᵀ with V keeping the first axis, and R' = U B' V'ᵀ with B' = B without its first column, which is
    bidiagonal again. The singular values of a bidiagonal matrix are the eigenvalues of the tridiagonal one with zero
    diagonal and the two diagonals' entries in turn beside it (Golub and Kahan 1965), as accurate relative to σ_1 as
    any.

    Args:
        triangle: float64, (M, M).

    Returns:
        M values and M values, the last of the centred ones zero.
    """
    columns = triangle.shape[1]
    reflector = np.full(columns, columns**-0.5)
    reflector[0] += 1.0
    reflector /= np.linalg.norm(reflector)
    turned = triangle - np.outer(triangle @ reflector, 2 * reflector)
    diagonal, above = _bidiagonal(np.asfortranarray(turned))
    path = np.empty(2 * columns - 1)
    path[0::2], path[1::2] = diagonal, above
    return _largest(path, columns), np.append(_largest(path[1:], columns - 1), 0.0)


def _largest(beside: Matrix, count: int) -> Matrix:
    """Return the ``count`` largest eigenvalues, not negative, of the tridiagonal matrix with zero diagonal."""
    if count == 0:
        return np.zeros(0)
    if beside.size == 0:
        return np.zeros(count)
    values = scipy.linalg.eigvalsh_tridiagonal(
        np.zeros(beside.size + 1), beside, lapack_driver="sterf", check_finite=False
    )
    return np.maximum(np.asarray(values, dtype=np.float64)[::-1][:count], 0.0)


def _bidiagonal(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Reduce a square matrix, Fortran order, in place; return the diagonal and what stands above it."""
    size = matrix.shape[0]
    diagonal, above = np.empty(size), np.empty(max(size - 1, 0))
    left, right, work = np.empty(size), np.empty(size), np.empty(1)
    for length in (-1, 0):  # first the question how much workspace is best, then the work
        wanted = -1 if length == -1 else int(work[0])
        work = work if length == -1 else np.empty(wanted)
        integers = [ctypes.c_int(value) for value in (size, size, max(size, 1), wanted, 0)]
        rows, columns, leading, workspace, info = (ctypes.byref(value) for value in integers)
        arrays = [array.ctypes.data_as(ctypes.c_void_p) for array in (matrix, diagonal, above, left, right, work)]
        _gebrd()(rows, columns, arrays[0], leading, *arrays[1:], workspace, info)
        if integers[4].value != 0:
            raise MatrixError(f"LAPACK's gebrd refused its argument {-integers[4].value}; try --method dense")
    return diagonal, above


@cache
def _gebrd() -> Any:
    """Return LAPACK's ``dgebrd``, which SciPy carries but wraps for Cython only."""
    capsule = cython_lapack.__pyx_capi__["dgebrd"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 11)(pointer(capsule, name(capsule)))
