"""LAPACK on the whole matrix, for small matrices and as an oracle for the other methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra, reflect_rows
from .base import QR_SHARE, SMALL, Cost, Options, SpectrumMethod

COPIES = 4
"""Float64 copies of the matrix at the peak: rows, matrix, LAPACK's copy and workspace."""


@final
class Dense(SpectrumMethod):
    """The float64 singular values of the matrix in memory, by LAPACK's divide and conquer (``gesdd``)."""

    name = "dense"
    fields = ("_matrix",)

    @classmethod
    def cost(cls, shape: tuple[int, int], options: Options) -> Cost:
        """Return the cost of `COPIES` matrices and two decompositions."""
        entries = shape[0] * shape[1]
        return Cost(COPIES * 8 * entries, 4.0 * entries * min(shape) / QR_SHARE, entries)

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
        self._matrix = torch.cat([self._matrix, rows])

    def _merge(self, state: Mapping[str, Tensor]) -> None:
        self._add(state["_matrix"])  # the order of rows changes no singular value

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        raw, driver = arithmetic.singular_values(self._matrix, careful=careful)
        centered, _ = arithmetic.singular_values(reflect_rows(self._matrix)[:, 1:], careful=careful)
        return Spectra(raw, centered, driver)
