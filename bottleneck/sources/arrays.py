"""Open a matrix: in a file, in memory, or in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..language_models.source import Source
from ..spectrum.blocks import checked
from ..spectrum.inspection import Inspection
from .array_files import numbers_of, read_array
from .matrix import MatrixSource
from .probabilities import open_probabilities
from .spool import Spool


def open_matrix(name: str, *, kind: str = "log-probs") -> Source:
    """Open a matrix in a file.

    Args:
        name: FILE, or FILE:NAME for a file of several arrays, with a suffix of `READERS`; only rows of ``.npy``,
            ``.safetensors`` and HDF5 files are read on demand.
        kind: see `MatrixSource`.

    Raises:
        SourceError: for a file that is missing or damaged, holds objects, or holds several matrices and none is named.
    """
    return of_array(read_array(name), kind=kind, path=name)


def of_array(matrix: Any, *, kind: str = "log-probs", path: str = "array") -> Source:
    """Return the source of a matrix of any kind; see `MatrixSource`."""
    if kind == "probabilities":
        return open_probabilities(matrix, path=path)
    return MatrixSource(matrix, kind=kind, path=path)


def from_blocks(blocks: Iterable[Any], *, kind: str) -> Source:
    """Return the matrix of consecutive blocks of rows; they are kept, because they are read more than once.

    More than 1 GiB is kept in a temporary file, so blocks may be more than memory holds.
    """
    spool, inspection = Spool(), Inspection(language=kind != "matrix")
    passing = not isinstance(blocks, list | tuple)  # what makes its blocks one by one may reuse their memory
    numbers = (numbers_of(rows, "a block of rows") for rows in inspection.noting(blocks))
    for rows in checked(numbers, minus_inf=True):
        spool.add(np.array(rows) if passing else rows)
        inspection.watch(rows)
    if kind == "probabilities":
        return of_array(spool, kind=kind, path="blocks")
    return MatrixSource(spool, kind=kind, path="blocks", inspection=inspection)
