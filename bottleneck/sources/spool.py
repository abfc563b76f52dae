"""Blocks of rows that are given once and read more than once: in memory, or in a temporary file if they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OutputError

KEPT = 1 << 30
"""Bytes that are kept in memory."""
BLOCK = 1024
"""Rows that are converted at once."""


class Spool:
    """Rows in the order in which they are added.

    The temporary file lies in Python's folder of temporary files (set by ``TMPDIR``) and is gone with the matrix.

    Args:
        kept: bytes that are kept in memory.

    Raises:
        OutputError: when the temporary file cannot be written.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._limit = kept
        self._pieces: list[NDArray[Any]] = []
        self._bytes = self._rows = 0
        self._file: IO[bytes] | None = None
        self._dtype = np.dtype(np.bool_)

    def add(self, rows: NDArray[Any]) -> None:
        """Add (n, M) numbers; they are not copied while they are in memory."""
        dtype = np.result_type(self._dtype, rows.dtype)
        if self._file is not None and dtype != self._dtype:  # all rows before are written again in the wider type
            written, self._file = self.matrix(), None
            self._dtype = dtype
            self._write(written[start : start + BLOCK] for start in range(0, len(written), BLOCK))
        self._dtype = dtype
        self._pieces.append(rows)
        self._rows += len(rows)
        self._bytes += rows.nbytes
        if self._file is not None or self._bytes > self._limit:
            self._write(self._pieces)
            self._pieces = []

    def matrix(self) -> NDArray[Any]:
        """Return all rows, (T, M), when all are added."""
        if self._file is None:
            return np.concatenate(self._pieces)
        with self._file:
            self._file.flush()
            return np.memmap(self._file, dtype=self._dtype, mode="r").reshape(self._rows, -1)

    def _write(self, pieces: Iterable[NDArray[Any]]) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="bottleneck-")  # noqa: SIM115 (closed by `matrix`)
            for piece in pieces:
                self._file.write(np.ascontiguousarray(piece, dtype=self._dtype).data.cast("B"))
        except OSError as error:
            raise OutputError(
                f"the rows cannot be kept in the folder of temporary files, {tempfile.gettempdir()} "
                f"({error.strerror or error}): set TMPDIR to a folder with enough space"
            ) from error
