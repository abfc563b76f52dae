"""LAPACK's bidiagonal routines, which SciPy carries but wraps for Cython only."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack

Values = NDArray[np.float64]


def bidiagonal(matrix: Values) -> tuple[Values, Values]:
    """Reduce a square matrix by ``gebrd``; return the diagonal, (M,), and what stands above it, (M − 1,).

    Args:
        matrix: float64, (M, M), Fortran order; used up.
    """
    size = matrix.shape[0]
    diagonal, above = np.empty(size), np.empty(max(size - 1, 0))
    left, right, work = np.empty(size), np.empty(size), np.empty(1)
    for length in (-1, 0):  # first the question how much workspace is best, then the work
        wanted = -1 if length == -1 else int(work[0])
        work = work if length == -1 else np.empty(wanted)
        _call("dgebrd", size, size, matrix, max(size, 1), diagonal, above, left, right, work, wanted)
    return diagonal, above


def bidiagonal_values(diagonal: Values, beside: Values, *, lower: bool = False) -> Values:
    """Return the singular values of a square bidiagonal matrix by ``bdsqr``: without vectors, Fernando and Parlett's
    dqds, each value to full relative accuracy.

    Args:
        diagonal: float64, (M,).
        beside: float64, (M − 1,), above the diagonal, or below it when ``lower``.
        lower: which.
    """
    values, other, unused = diagonal.copy(), np.append(beside, 0.0), np.empty(1)
    size = values.size
    _call("dbdsqr", b"L" if lower else b"U", size, 0, 0, 0, values, other, unused, 1, unused, 1, unused, 1,
          np.empty(4 * size))  # fmt: skip
    return values


def _call(name: str, *arguments: Any) -> None:
    """Call a LAPACK routine whose last argument is ``info``; everything goes by reference."""
    info = ctypes.c_int(0)
    passed: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            passed.append(argument.ctypes.data_as(ctypes.c_void_p))
        else:
            passed.append(
                ctypes.byref(ctypes.c_char(argument) if isinstance(argument, bytes) else ctypes.c_int(argument))
            )
    _routine(name, len(passed) + 1)(*passed, ctypes.byref(info))
    if info.value < 0:
        raise np.linalg.LinAlgError(f"{name} refused its argument {-info.value}")
    if info.value > 0:
        raise np.linalg.LinAlgError(f"{name} did not converge")


@cache
def _routine(name: str, arguments: int) -> Any:
    capsule = vars(cython_lapack)["__pyx_capi__"][name]
    capsule_name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(pointer(capsule, capsule_name(capsule)))
