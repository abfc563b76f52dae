"""LAPACK routines that SciPy contains but does not wrap for Python, and the reduction to tridiagonal form by them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import cython_lapack
from scipy.linalg.lapack import dsytrd, dsytrd_lwork

from .arithmetic import Values

BAND = 48
"""Diagonals below the main one that the first stage leaves."""
SMALLEST = 3000
"""Columns from which two stages are faster than one: a smaller matrix stays in cache."""


def svd(matrix: Values) -> tuple[Values, Values, Values]:
    """Return U, σ and Vᵀ, by divide and conquer or, where that does not converge, by QR iteration.

    OpenBLAS's ``gesdd`` fails on a few graded matrices, such as 313 × 215 numbers of rank 67 whose last σ are roundoff.
    """
    try:
        return tuple(np.linalg.svd(matrix, full_matrices=False))  # type: ignore[return-value]
    except np.linalg.LinAlgError:
        return scipy.linalg.svd(matrix, full_matrices=False, lapack_driver="gesvd")


def call(name: str, *arguments: Any) -> None:
    """Call a routine whose last argument is ``info``; everything goes by reference, numbers as LAPACK's integers.

    Args:
        name: name in lower case with the letter of the type, such as ``"dgebrd"``.
        arguments: all arguments but ``info``: NumPy arrays in Fortran order, integers, and options as one byte.

    Raises:
        numpy.linalg.LinAlgError: when it refuses an argument or does not converge.
        LookupError: when this LAPACK has no such routine.
    """
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


def call_with_workspace(name: str, *arguments: Any) -> None:
    """Call a routine whose last arguments before ``info`` are a workspace and its length, with the length it asks for.

    Args:
        name: as for `call`.
        arguments: all arguments before the workspace.

    Raises:
        numpy.linalg.LinAlgError, LookupError: as for `call`.
    """
    asked = np.empty(1)
    call(name, *arguments, asked, -1)
    call(name, *arguments, np.empty(int(asked[0])), int(asked[0]))


@cache
def _routine(name: str, arguments: int) -> Any:
    capsule = vars(cython_lapack)["__pyx_capi__"].get(name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(
        _in_library(name) if capsule is None else _in_capsule(capsule)
    )


def _in_capsule(capsule: Any) -> int:
    """Return the address that Cython would call."""
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer(capsule, name(capsule))
    return address


def _in_library(name: str) -> int:
    """Return the address in the library that SciPy was linked with, whose wheels put their own name before it."""
    library = ctypes.CDLL(cython_lapack.__file__)
    for symbol in (f"scipy_{name}_", f"{name}_"):
        if hasattr(library, symbol):
            return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
    raise LookupError(f"the LAPACK behind SciPy has no {name}")


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
    call_with_workspace("dsytrd_sy2sb", b"L", size, BAND, matrix, size, band, BAND + 1, reflectors)
    diagonal, below = np.empty(size), np.empty(size - 1)
    second = ("dsytrd_sb2st", b"Y", b"N", b"L", size, BAND, band, BAND + 1, diagonal, below)
    reflections, work = np.empty(1), np.empty(1)
    call(*second, reflections, -1, work, -1)  # asks for the lengths of both
    reflections, work = np.empty(int(reflections[0])), np.empty(int(work[0]))
    call(*second, reflections, reflections.size, work, work.size)
    return diagonal, below
