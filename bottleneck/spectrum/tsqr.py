"""Tall-skinny QR: full float64 accuracy on a stream of rows, keeping one triangle."""

from __future__ import annotations

from typing import final

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dtpqrt

from ..errors import MatrixError
from .base import Matrix, Spectrum, SpectrumMethod, certified, check_scale, lapack

PANEL = 64
"""Columns that LAPACK eliminates at once inside one update."""

ROWS_AT_ONCE = 512
"""Rows that are gathered for one update: it touches the whole triangle, however few they are."""


@final
class TSQR(SpectrumMethod):
    r"""The singular values of R in A = QR, updated block by block (Demmel et al. 2012, *Communication-optimal QR*).

    Each block B of rows is eliminated against the triangle, :math:`\binom{R}{B} = Q \binom{R'}{0}`, by LAPACK's
    triangular-pentagonal ``tpqrt``, which spends nothing on the zeros below R's diagonal. Centring the rows of A
    acts on R alone, :math:`A (I - 11^⊤/M) = Q (R - \bar r 1^⊤)` with r̄ the rows' means of R, so one pass serves both
    spectra.

    Costs 2 T·M² operations and three M × M matrices of float64 at the end; resolves σ down to eps · σ_1.
    """

    name = "tsqr"

    def __init__(self, columns: int) -> None:
        self._triangle = np.zeros((columns, columns), order="F")
        self._waiting: list[Matrix] = []
        self._squared_norm = 0.0
        self._squared_means = 0.0
        self._rows = 0

    def update(self, rows: Matrix) -> None:
        """Eliminate the next rows: float64, (n, M)."""
        means = rows.mean(axis=1)
        self._squared_norm += float(np.einsum("ij,ij->", rows, rows))
        self._squared_means += float(means @ means)
        self._rows += len(rows)
        self._waiting.append(np.array(rows))  # a copy: the caller may reuse its block
        if sum(map(len, self._waiting)) >= ROWS_AT_ONCE:
            self._eliminate()

    def finish(self) -> Spectrum:
        """Return the spectrum of all rows given."""
        self._eliminate()
        check_scale(self._squared_norm)
        columns = self._triangle.shape[0]
        centered = self._triangle - self._triangle.mean(axis=1, keepdims=True)
        with lapack(self.name):
            values = scipy.linalg.svdvals(self._triangle, check_finite=False)
            centered_values = scipy.linalg.svdvals(centered, overwrite_a=True, check_finite=False)
        return certified(
            values,
            centered_values,
            shape=(self._rows, columns),
            method=self.name,
            squared_norm=self._squared_norm,
            centered_squared_norm=self._squared_norm - columns * self._squared_means,
        )

    def _eliminate(self) -> None:
        """Fold the waiting rows into the triangle."""
        block = np.asfortranarray(np.concatenate([np.zeros((0, self._triangle.shape[1])), *self._waiting]))
        self._waiting = []
        if not len(block):
            return
        panel = min(PANEL, self._triangle.shape[0])
        self._triangle, _, _, info = dtpqrt(0, panel, self._triangle, block, overwrite_a=1, overwrite_b=1)
        if info != 0:
            raise MatrixError(f"LAPACK's tpqrt refused its argument {-info}; try --method dense")
