"""Rows of a matrix in a file, read on demand, and the size of a matrix against the bytes that it is stored in."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from csv import Error as CsvError
from pathlib import Path
from typing import Any, final

import numpy as np
from safetensors import SafetensorError

from ..core.files import DAMAGE, check_size
from ..errors import SourceError, first_line

UNREADABLE = (*DAMAGE, SafetensorError, pickle.UnpicklingError, CsvError, SystemError, AssertionError)
"""What the readers raise for a damaged file; h5py's locks and old files of torch raise the last two."""
PACKED = {"scale_factor", "add_offset"}
"""Attributes by which netCDF's conventions make other numbers of those that are stored."""
PACKED_NUMBERS = "the numbers of {} are packed, by {}: write them unpacked"
LONGEST = 120
"""Characters of a reader's message that are shown: some quote the whole line."""


@final
class FileRows:
    """Rows of an array in a file, which are read on demand and not kept.

    A file that changes while it is measured is refused, because the passes over it would see different matrices.

    Args:
        path: the file.
        shape: shape of the array.
        read: returns some rows; it may raise `UNREADABLE`.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], read: Callable[[slice], Any]) -> None:
        self.shape, self.ndim = shape, len(shape)
        self._path, self._read, self._state = path, read, _state(path)

    def __getitem__(self, rows: slice) -> Any:
        """Return some rows; `SourceError` when the file cannot be read or has changed since it was opened."""
        self._check()
        try:
            values = self._read(slice(*rows.indices(self.shape[0])))
        except UNREADABLE as error:
            self._check()
            raise unreadable(self._path, error) from error
        self._check()
        return values

    def _check(self) -> None:
        if _state(self._path) != self._state:
            raise SourceError(f"{self._path} changed while it was read: wait until it is written, and measure it again")


def unreadable(path: Path, error: Exception) -> SourceError:
    """Return the error for a file that its reader cannot read."""
    message = first_line(error)[:LONGEST]
    if isinstance(error, UnicodeDecodeError):
        return SourceError(f"{path} is not text in UTF-8: save it in UTF-8")
    if isinstance(error, pickle.UnpicklingError) or re.search("pickle|weights_only|Python objects", message):
        # NumPy and torch would advise to let it run code.
        message = "it is of another kind, or holds Python objects: save the array alone by numpy.save or torch.save"
    return SourceError(f"{path} cannot be read as a {path.suffix} file: {message}; write or copy it again")


def _state(path: Path) -> tuple[int, ...]:
    try:
        about = path.stat()
    except OSError:
        return ()
    return about.st_ino, about.st_size, about.st_mtime_ns


def check_strides(matrix: Any, what: str) -> None:
    """Refuse an array or tensor whose strides make far more entries than its memory holds."""
    if isinstance(matrix, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(matrix)
        check_size(matrix.shape, matrix.dtype.itemsize, stored=high - low, what=what)
    elif hasattr(matrix, "untyped_storage"):
        check_size(matrix.shape, matrix.element_size(), stored=matrix.untyped_storage().nbytes(), what=what)
