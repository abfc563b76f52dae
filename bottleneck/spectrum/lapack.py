"""LAPACK routines that SciPy contains but does not wrap for Python."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack


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
