"""The Gram matrix on the smaller side, for fewer contexts than tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra
from .base import SpectrumMethod, Totals
from .gram import RESOLUTION

COLUMNS = 8192
"""Tokens at once while the products are formed: a block in float64 beside the rows."""


@final
class WideGram(SpectrumMethod):
    r"""Square roots of the eigenvalues of :math:`A A^⊤`, T × T.

    The rows are kept, in float32 where that is all they hold; the products are formed in float64 over blocks of
    columns at the end. Summed is :math:`C C^⊤` of the row-centred C; as C1 = 0, :math:`A A^⊤ = C C^⊤ + M\,m m^⊤`
    with m the rows' means.

    Costs T²·M operations (BLAS ``syrk``) plus 4/3 T³ for each spectrum; the rows and three T × T matrices of float64.
    """

    name = "gram"
    resolution = RESOLUTION
    fields = ("_rows", "_totals")

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self._kept: list[Tensor] = []

    def _add(self, rows: Tensor) -> None:
        kept, totals = _narrowest(rows), self._totals + Totals.of(rows)
        self._kept.append(kept)
        self._totals = totals

    @property
    def _rows(self) -> Tensor:
        """All rows given, in the narrowest type that holds them."""
        return torch.cat(self._kept) if self._kept else self.arithmetic.zeros(0, self.columns)

    @_rows.setter
    def _rows(self, rows: Tensor) -> None:
        self._kept = [_narrowest(rows)]

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Keep other rows: their order changes no singular value."""
        self._kept.append(state["_rows"])
        self._totals = self._totals + state["_totals"]

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        rows = self._rows
        self._kept = [rows]  # one copy of them, not two
        rows = rows.to(arithmetic.device)
        means = rows.mean(1, dtype=torch.float64)
        gram = arithmetic.zeros(len(rows), len(rows))
        for start in range(0, self.columns, COLUMNS):
            block = rows[:, start : start + COLUMNS].double() - means[:, None]
            arithmetic.add_square(gram, block.T.contiguous())
        centered, driver = arithmetic.eigenvalues(gram, careful=careful)
        raw, _ = arithmetic.eigenvalues(gram.addr_(means, means, alpha=self.columns), careful=careful)
        return Spectra(np.sqrt(np.maximum(raw, 0.0)), np.sqrt(np.maximum(centered, 0.0)), driver)


def _narrowest(rows: Tensor) -> Tensor:
    """Return a copy in float32 where that holds every number, else in float64."""
    narrow = rows.float()
    return narrow if torch.equal(narrow.double(), rows) else rows.clone()
