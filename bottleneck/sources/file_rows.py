"""Rows of a matrix in a file, read on demand."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from csv import Error as CsvError
from pathlib import Path
from typing import Any, final

from safetensors import SafetensorError

from ..errors import SourceError, first_line
from ..spectrum.files import DAMAGE

UNREADABLE = (*DAMAGE, SafetensorError, pickle.UnpicklingError, CsvError, SystemError, AssertionError)
"""What the readers raise for a damaged file; h5py's locks and old files of torch raise the last two."""
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
        nbytes: bytes that stay in memory.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], read: Callable[[slice], Any], *, nbytes: int = 0) -> None:
        self.shape, self.ndim, self.nbytes = shape, len(shape), nbytes
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
    return SourceError(f"{path} cannot be read as a {path.suffix} file: {message}; write or copy it again")


def _state(path: Path) -> tuple[int, ...]:
    try:
        about = path.stat()
    except OSError:
        return ()
    return about.st_ino, about.st_size, about.st_mtime_ns
