"""A = X Yᵀ with thin factors: the exact spectrum without ever forming A."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra, triangle_of
from .base import QR_SHARE, Cost, Norms, Options, SpectrumMethod

COPIES = 4
"""Float64 copies of Y at the peak: itself, centred, LAPACK's and R's source."""


@final
class Factored(SpectrumMethod):
    r"""Singular values of :math:`X Y^⊤` from two thin QR factorizations, :math:`σ(R_X R_Y^⊤)`.

    For a log-linear head X = [H, 1, −log Z] and Y = [W, b, 1], so that :math:`X Y^⊤ = \log P`. Rows of X are
    streamed: only the r × r triangle is kept (a QR of the triangle on top of each new block). Centring the rows of
    A centres the columns of Y: :math:`A (I - 11^⊤/M) = X (Y - 1\bar y^⊤)^⊤`; one QR of [1, Y] gives both.

    The method is exact to float64 and takes T·r² operations. The certificate is the identity
    ‖A‖²_F = tr(XᵀX YᵀY), with XᵀX summed separately from the QR.

    Args:
        right: Y, float64, (M, r).
        arithmetic: arithmetic of the device to compute on.
    """

    name = "factored"
    fields = ("_triangle", "_gram")
    from_factors = True

    @classmethod
    def cost(cls, shape: tuple[int, int], options: Options) -> Cost:
        """Return the cost of `COPIES` of Y and the factorizations of X and [1, Y]."""
        (T, M), r = shape, options.factor_columns
        return Cost(COPIES * 8 * M * r, (4.0 * M + 2.0 * T) * r**2 / QR_SHARE, M * (r + 1))

    @classmethod
    def suits(cls, shape: tuple[int, int], eps: float, options: Options) -> str:
        """Suit a matrix that has thin factors."""
        return f"the head's factors have {options.factor_columns:,} columns" if options.factor_columns else ""

    def __init__(self, right: Any, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(right.shape[1], arithmetic=arithmetic)
        self.rows_at_once = max(2048, 4 * self.columns)  # the triangle on top of each block is work too
        self._right = self.arithmetic.take(right)
        self._triangle = self.arithmetic.zeros(0, self.columns)
        self._gram = self.arithmetic.zeros(self.columns, self.columns)

    def _add(self, rows: Tensor) -> None:
        triangle = triangle_of(torch.cat([self._triangle, rows]))
        self._triangle, self._gram = triangle, self._gram + rows.T @ rows

    def _merge(self, state: Mapping[str, Tensor]) -> None:
        self._triangle = triangle_of(torch.cat([self._triangle, state["_triangle"]]))
        self._gram = self._gram + state["_gram"]

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        # With [1, Y] = QR, the columns of R after the first are a triangle of Y, and below their first row a triangle
        # of its centred columns. Columns that centring makes zero are left out: they would add only roundoff.
        border = torch.ones_like(self._right[:, :1])
        corner = triangle_of(torch.cat([border, self._right], 1))[:, 1:]
        varying = (self._right != self._right[0]).any(0)
        raw, driver = arithmetic.singular_values(self._triangle @ corner.T, careful=careful)
        core = self._triangle[:, varying] @ corner[1:, varying].T
        centered, _ = arithmetic.singular_values(core, careful=careful)
        # A product of two triangles is exact to the product of their norms, which may cancel in it.
        factors = ((self._triangle, corner), (self._triangle[:, varying], corner[1:, varying]))
        scales = tuple(float(torch.linalg.norm(x) * torch.linalg.norm(y)) for x, y in factors)
        return Spectra(raw, centered, driver, scales=(scales[0], scales[1]))

    def _norms(self) -> Norms:
        shape = (int(self._totals[0]), len(self._right))
        square = self.arithmetic.zeros(self.columns, self.columns)
        self.arithmetic.add_square(square, self._right)
        square = square.tril() + square.tril(-1).T
        mean = self._right.mean(0)
        centered = square - len(self._right) * torch.outer(mean, mean)
        return Norms(shape, float((self._gram * square).sum()), float((self._gram * centered).sum()))
