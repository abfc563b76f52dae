"""LAPACK on the whole matrix: for small ones, and as the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra, turned
from .base import SpectrumMethod, Totals


@final
class Dense(SpectrumMethod):
    """The float64 singular values of the matrix in memory, by LAPACK's divide and conquer (``gesdd``)."""

    name = "dense"
    fields = ("_matrix", "_totals")

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self.rows_at_once = 1 << 20
        self._matrix = self.arithmetic.zeros(0, columns)

    def _add(self, rows: Tensor) -> None:
        matrix = torch.cat([self._matrix, rows])
        self._totals = self._totals + Totals.of(rows)
        self._matrix = matrix

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Keep other rows: their order changes no singular value."""
        self._matrix = torch.cat([self._matrix, state["_matrix"]])
        self._totals = self._totals + state["_totals"]

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        raw, driver = arithmetic.singular_values(self._matrix, careful=careful)
        centered, _ = arithmetic.singular_values(turned(self._matrix)[:, 1:], careful=careful)
        return Spectra(raw, centered, driver)
