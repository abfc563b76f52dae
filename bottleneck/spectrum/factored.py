"""A = X Yᵀ with thin factors: the exact spectrum without ever forming A."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
import scipy.linalg

from .base import Matrix, Spectrum, SpectrumMethod, Totals, certified, check_scale, lapack


@final
class Factored(SpectrumMethod):
    r"""Singular values of :math:`X Y^⊤` from two thin QR factorizations, :math:`σ(R_X R_Y^⊤)`.

    For a log-linear head X = [H, 1, −log Z] and Y = [W, b, 1], so that :math:`X Y^⊤ = \log P`. Rows of X are
    streamed: only the r × r triangle is kept (a QR of the triangle on top of each new block). Centring the rows of
    A is centring the columns of Y: :math:`A (I - 11^⊤/M) = X (Y - 1\bar y^⊤)^⊤`.

    Exact to float64; T·r² operations. The certificate is the identity ‖A‖²_F = tr(XᵀX YᵀY), with XᵀX summed apart
    from the QR.

    Args:
        right: Y, float64, (M, r).
    """

    name = "factored"
    fields = ("_triangle", "_gram", "_totals")
    rows_at_once = 8192  # thin blocks one by one cost more in calls than in operations

    def __init__(self, right: Matrix) -> None:
        self._right = right
        size = right.shape[1]
        self._triangle = np.zeros((0, size))
        self._gram = np.zeros((size, size))
        self._totals = np.zeros(3)

    def update(self, rows: Matrix) -> None:
        """Take the next rows of X: float64, (n, r)."""
        self._triangle = _triangle(np.concatenate([self._triangle, rows]))
        self._gram = self._gram + rows.T @ rows
        self._totals = self._totals + Totals.of(rows)

    def merge(self, state: Mapping[str, Matrix]) -> None:
        """Take in the triangle and XᵀX of other rows."""
        self._triangle = _triangle(np.concatenate([self._triangle, state["_triangle"]]))
        self._gram = self._gram + state["_gram"]
        self._totals = self._totals + state["_totals"]

    def finish(self) -> Spectrum:
        """Return the spectrum of X Yᵀ for all rows of X given."""
        centered = self._right - self._right.mean(axis=0)
        squared_norm = self._squared_norm(self._right)
        check_scale(squared_norm)
        return certified(
            self._singular_values(self._right),
            self._singular_values(centered),
            shape=(Totals.read(self._totals).rows, self._right.shape[0]),
            method=self.name,
            squared_norm=squared_norm,
            centered_squared_norm=self._squared_norm(centered),
        )

    def _singular_values(self, right: Matrix) -> Matrix:
        # Columns of zeros, as centring makes of the one beside log Z, would add roundoff and nothing else.
        kept = right.any(axis=0)
        if not kept.any():
            return np.zeros(1)
        core = self._triangle[:, kept] @ _triangle(right[:, kept]).T
        with lapack(self.name):
            return np.asarray(scipy.linalg.svdvals(core, check_finite=False))

    def _squared_norm(self, right: Matrix) -> float:
        return float(np.einsum("ij,ij->", self._gram, right.T @ right))


def _triangle(matrix: Matrix) -> Matrix:
    """Return R of a QR factorization: (min(n, r), r)."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))
