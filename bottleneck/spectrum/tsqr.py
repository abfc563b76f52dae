"""Tall-skinny QR: full float64 accuracy on a stream of rows, keeping one triangle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from torch import Tensor

from .arithmetic import Arithmetic, Spectra
from .base import SpectrumMethod, Totals


@final
class TSQR(SpectrumMethod):
    r"""The singular values of R in A = QR, updated block by block (Demmel et al. 2012, *Communication-optimal QR*).

    Each block B of rows is eliminated against the triangle, :math:`\binom{R}{B} = Q \binom{R'}{0}`; on the CPU by
    LAPACK's triangular-pentagonal ``tpqrt``, which spends nothing on the zeros below R's diagonal. Centring the rows
    of A acts on R alone, :math:`A (I - 11^⊤/M) = Q (R - \bar r 1^⊤)` with r̄ the rows' means of R, so one pass serves
    both spectra.

    Costs 2 T·M² operations for the stream, 8/3 M³ for both spectra, and three M × M matrices of float64 at the end;
    resolves σ down to eps · σ_1.
    """

    name = "tsqr"
    fields = ("_triangle", "_totals")

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self.rows_at_once = self.arithmetic.elimination_rows(columns)
        self._triangle = self.arithmetic.zeros(columns, columns)

    def _add(self, rows: Tensor) -> None:
        totals = self._totals + Totals.of(rows)
        self._triangle = self.arithmetic.eliminate(self._triangle, rows)
        self._totals = totals

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Eliminate the triangle of other rows."""
        self._totals = self._totals + state["_totals"]
        self._triangle = self.arithmetic.eliminate(self._triangle, state["_triangle"], triangular=True)

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        return arithmetic.triangle_spectra(self._triangle, careful=careful)
