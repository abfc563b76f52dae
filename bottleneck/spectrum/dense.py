"""LAPACK on the whole matrix, for small matrices and as an oracle for the other methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra, reflect_rows
from .base import QR_SHARE, SMALL, Options, SpectrumMethod, Totals

COPIES = 4
"""Float64 copies of the matrix at the peak: rows, matrix, LAPACK's copy and workspace."""


@final
class Dense(SpectrumMethod):
    """The float64 singular values of the matrix in memory, by LAPACK's divide and conquer (``gesdd``)."""

    name = "dense"
    fields = ("_matrix", "_totals")

    @classmethod
    def memory(cls, shape: tuple[int, int], options: Options) -> int:
        """Return the bytes of `COPIES` matrices."""
        return COPIES * 8 * shape[0] * shape[1]

    @classmethod
    def operations(cls, shape: tuple[int, int], options: Options) -> float:
        """Return the operations of two decompositions."""
        return 4.0 * shape[0] * shape[1] * min(shape) / QR_SHARE

    @classmethod
    def largest_array(cls, shape: tuple[int, int], options: Options) -> int:
        """Return the matrix's entries."""
        return shape[0] * shape[1]

    @classmethod
    def suits(cls, shape: tuple[int, int], eps: float, options: Options) -> str:
        """Suit every matrix that no earlier method suits."""
        if shape[0] * shape[1] <= SMALL:
            return "the matrix is small"
        return f"fewer contexts than tokens, and accurate enough for entries with a roundoff of {eps:.3g}"

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self.rows_at_once = 1 << 20
        self._matrix = self.arithmetic.zeros(0, columns)

    def _add(self, rows: Tensor) -> None:
        matrix = torch.cat([self._matrix, rows])
        self._totals = self._totals + Totals.of(rows)
        self._matrix = matrix

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Add other rows; their order changes no singular value."""
        self._matrix = torch.cat([self._matrix, state["_matrix"]])
        self._totals = self._totals + state["_totals"]

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        raw, driver = arithmetic.singular_values(self._matrix, careful=careful)
        centered, _ = arithmetic.singular_values(reflect_rows(self._matrix)[:, 1:], careful=careful)
        return Spectra(raw, centered, driver)
