"""Blocks of rows that are given once and read more than once: in memory, or in a temporary file if they are many."""

from __future__ import annotations

import tempfile
import weakref
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OutputError
from ..language_models.source import spanning

IN_MEMORY = 1 << 30
"""Bytes that stay in memory."""


class Spool:
    """Rows in the order in which they are added.

    The temporary file lies in Python's folder of temporary files (set by ``TMPDIR``) and is gone with the matrix.

    Args:
        in_memory: bytes that stay in memory.

    Raises:
        OutputError: when the temporary file cannot be written.
    """

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._free, self.dtype = in_memory, np.dtype(np.bool_)
        self._pieces: list[tuple[NDArray[Any] | int, np.dtype[Any]]] = []  # an array, or its place in the file
        self._starts: list[int] = [0]
        self._file: IO[bytes] | None = None
        self.shape = (0, 0)

    def add(self, rows: NDArray[Any]) -> None:
        """Add (n, M) numbers; they are not copied while they are in memory."""
        self.dtype = np.result_type(self.dtype, rows.dtype)
        self.shape = (self.shape[0] + len(rows), rows.shape[1])
        self._starts.append(self.shape[0])
        self._free -= rows.nbytes
        self._pieces.append((rows if self._free >= 0 else self._write(rows), rows.dtype))

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Return some rows in the widest of all types."""
        return spanning(range(*rows.indices(self.shape[0])), self._starts, self._piece).astype(self.dtype, copy=False)

    def _piece(self, number: int) -> NDArray[Any]:
        piece, dtype = self._pieces[number]
        if isinstance(piece, np.ndarray):
            return piece
        assert self._file is not None
        shape = (self._starts[number + 1] - self._starts[number], self.shape[1])
        return np.memmap(self._file, dtype, "r", piece, shape)

    def _write(self, rows: NDArray[Any]) -> int:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="bottleneck-")  # noqa: SIM115 (closed with the rows)
                weakref.finalize(self, self._file.close)
            place = self._file.seek(0, 2)
            self._file.write(np.ascontiguousarray(rows).data.cast("B"))
            self._file.flush()
        except OSError as error:
            raise OutputError(
                f"the rows cannot be kept in the folder of temporary files, {tempfile.gettempdir()} "
                f"({error.strerror or error}): set TMPDIR to a folder with enough space"
            ) from error
        return place
