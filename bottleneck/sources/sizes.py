"""The size of a matrix against the bytes that it is stored in, looked at before anything is read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.machine import free_memory
from ..errors import SourceError

ALWAYS, PACKED = 1 << 30, 1000
"""Bytes that any matrix may have, and the most for each stored byte: zlib's limit is 1,032."""


def largest(stored: int) -> int:
    """Return the most bytes that ``stored`` bytes may hold."""
    return max(ALWAYS, PACKED * stored)


def check_size(shape: tuple[int, ...], itemsize: int, *, stored: int, what: str, whole: bool = False) -> None:
    """Refuse a matrix that is far larger than what it is stored in, or than memory if it is read as a whole.

    Raises:
        SourceError: with both sizes.
    """
    declared = math.prod(map(int, shape)) * itemsize
    if declared > largest(stored):
        raise SourceError(
            f"{what} takes {declared / 2**30:,.1f} GiB, and only {stored:,} bytes of it are stored: it repeats a few "
            "numbers or is damaged; save all of its entries"
        )
    if whole and declared > (free := free_memory()):
        raise SourceError(
            f"{what} takes {declared / 2**30:,.1f} GiB, is read as a whole, and {free / 2**30:.1f} GiB are free: save "
            "it as .npy, which is read row by row"
        )


def check_strides(matrix: Any, what: str) -> None:
    """Refuse an array or tensor whose strides make far more entries than its memory holds."""
    if isinstance(matrix, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(matrix)
        check_size(matrix.shape, matrix.dtype.itemsize, stored=high - low, what=what)
    elif hasattr(matrix, "untyped_storage"):
        check_size(matrix.shape, matrix.element_size(), stored=matrix.untyped_storage().nbytes(), what=what)
