"""LAPACK on the whole matrix: for small ones, and as the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
import scipy.linalg

from .base import Matrix, Spectrum, SpectrumMethod, certified, check_scale, lapack


@final
class Dense(SpectrumMethod):
    """The float64 singular values of the matrix in memory, by LAPACK's divide and conquer (``gesdd``)."""

    name = "dense"
    fields = ("_matrix",)
    rows_at_once = 1 << 20

    def __init__(self, columns: int) -> None:
        self._matrix = np.zeros((0, columns))

    def update(self, rows: Matrix) -> None:
        """Keep the next rows."""
        self._matrix = np.concatenate([self._matrix, rows])

    def merge(self, state: Mapping[str, Matrix]) -> None:
        """Keep other rows: their order changes no singular value."""
        self.update(state["_matrix"])

    def finish(self) -> Spectrum:
        """Return the spectrum of all rows given."""
        matrix = self._matrix
        self._matrix = matrix[:0]
        squared_norm = float(np.einsum("ij,ij->", matrix, matrix))
        check_scale(squared_norm)
        with lapack(self.name):
            values = scipy.linalg.svdvals(matrix, check_finite=False)
        matrix = matrix - matrix.mean(axis=1, keepdims=True)
        centered_squared_norm = float(np.einsum("ij,ij->", matrix, matrix))
        shape = (matrix.shape[0], matrix.shape[1])
        with lapack(self.name):
            centered = scipy.linalg.svdvals(matrix, overwrite_a=True, check_finite=False)
        return certified(
            values,
            centered,
            shape=shape,
            method=self.name,
            squared_norm=squared_norm,
            centered_squared_norm=centered_squared_norm,
        )
