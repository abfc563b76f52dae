"""Tall-skinny QR: full float64 accuracy on a stream of rows, keeping one triangle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
from scipy.linalg.lapack import dtpqrt

from ..errors import MatrixError
from .base import Matrix, Spectrum, SpectrumMethod, Totals, certified, check_scale, lapack
from .bidiagonal import singular_values_and_centered

PANEL = 32
"""Columns that LAPACK eliminates at once inside one update."""


@final
class TSQR(SpectrumMethod):
    r"""The singular values of R in A = QR, updated block by block (Demmel et al. 2012, *Communication-optimal QR*).

    Each block B of rows is eliminated against the triangle, :math:`\binom{R}{B} = Q \binom{R'}{0}`, by LAPACK's
    triangular-pentagonal ``tpqrt``, which spends nothing on the zeros below R's diagonal. Centring the rows of A
    acts on R alone, :math:`A (I - 11^⊤/M) = Q (R - \bar r 1^⊤)` with r̄ the rows' means of R, so one pass serves both
    spectra.

    Costs 2 T·M² operations for the stream, 8/3 M³ for both spectra, and three M × M matrices of float64 at the end;
    resolves σ down to eps · σ_1.
    """

    name = "tsqr"
    fields = ("_triangle", "_totals")
    rows_at_once = 512

    def __init__(self, columns: int) -> None:
        self._triangle = np.zeros((columns, columns), order="F")
        self._totals = np.zeros(3)

    def update(self, rows: Matrix) -> None:
        """Eliminate the next rows: float64, (n, M)."""
        self._totals = self._totals + Totals.of(rows)
        self._triangle = eliminated(self._triangle, rows)

    def merge(self, state: Mapping[str, Matrix]) -> None:
        """Eliminate the triangle of other rows."""
        self._totals = self._totals + state["_totals"]
        self._triangle = eliminated(self._triangle, state["_triangle"], triangular=True)

    def finish(self) -> Spectrum:
        """Return the spectrum of all rows given."""
        totals = Totals.read(self._totals)
        check_scale(totals.squared_norm)
        columns = self._triangle.shape[0]
        with lapack(self.name):
            values, centered = singular_values_and_centered(self._triangle)
        return certified(
            values,
            centered,
            shape=(totals.rows, columns),
            method=self.name,
            squared_norm=totals.squared_norm,
            centered_squared_norm=totals.squared_norm - columns * totals.squared_means,
        )


def eliminated(triangle: Matrix, block: Matrix, *, triangular: bool = False) -> Matrix:
    r"""Return R' of :math:`\binom{R}{B} = Q \binom{R'}{0}`; ``triangle``, in Fortran order, is overwritten.

    Args:
        triangle: R, (M, M), upper triangular.
        block: B, (n, M).
        triangular: whether B is an upper triangle too, whose zeros cost nothing.

    Raises:
        MatrixError: when LAPACK refuses.
    """
    panel = min(PANEL, triangle.shape[0])
    known_zeros = len(block) if triangular else 0
    found, _, _, info = dtpqrt(known_zeros, panel, triangle, np.array(block, order="F"), overwrite_a=1, overwrite_b=1)
    if info != 0:
        raise MatrixError(f"LAPACK's tpqrt refused its argument {-info}; try --method dense")
    return np.asarray(found)
