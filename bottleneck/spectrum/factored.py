"""A = X Yᵀ with thin factors: the exact spectrum without ever forming A."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra, triangle_of
from .base import QR_SHARE, Cost, Norms, Options, SpectrumMethod

COPIES, BLOCKS = 7, 3
"""Float64 matrices of r × r at the peak (both triangles, XᵀX, the product, and copies for LAPACK), and blocks of rows
(itself, with what is put above or beside it, and LAPACK's copy)."""
BLOCK = 2
"""Rows of a block over its columns: QR of a block this tall works at the rate of matrix products."""
AT_ONCE = 1 << 25
"""Entries of Y that are one block: merging triangles would take longer."""


@final
class Factored(SpectrumMethod):
    r"""Singular values of :math:`X Y^⊤` from two thin QR factorizations, :math:`σ(R_X R_Y^⊤)`.

    For a log-linear head X = [H, 1, −log Z] and Y = [W, b, 1], so that :math:`X Y^⊤ = \log P`. Rows of X are
    streamed: only the r × r triangle is kept (a QR of the triangle on top of each new block). Centring the rows of
    A centres the columns of Y: :math:`A (I - 11^⊤/M) = X (Y - 1\bar y^⊤)^⊤`; one QR of [1, Y] gives both.

    Y is read in blocks too. The method is exact to float64 and takes 2 (T + M) r² operations. The certificate is the
    identity ‖A‖²_F = tr(XᵀX YᵀY), with XᵀX summed separately from the QR.

    Args:
        right: Y, (M, r): an array, or anything with a shape whose slices are arrays.
        arithmetic: arithmetic of the device to compute on.
    """

    name = "factored"
    fields = ("_triangle", "_gram")
    from_factors = True

    @classmethod
    def cost(cls, shape: tuple[int, int], options: Options) -> Cost:
        """Return the cost of `COPIES` of the triangle, a block of Y and the factorizations of X and [1, Y]."""
        (T, M), r = shape, options.factor_columns
        block = max(min(T, _rows_at_once(r)), min(M, max(AT_ONCE // r, _rows_at_once(r))))
        return Cost(8 * r * (COPIES * r + BLOCKS * block), (2.0 * M + 3.0 * T) * r**2 / QR_SHARE, r * (r + block))

    @classmethod
    def suits(cls, shape: tuple[int, int], eps: float, options: Options) -> str:
        """Suit a matrix that has thin factors."""
        return f"the head's factors have {options.factor_columns:,} columns" if options.factor_columns else ""

    def __init__(self, right: Any, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(right.shape[1], arithmetic=arithmetic)
        self.rows_at_once = _rows_at_once(self.columns)
        self._right = right
        self._triangle = self.arithmetic.zeros(0, self.columns)
        self._gram = self.arithmetic.zeros(self.columns, self.columns)

    def _right_blocks(self) -> Iterator[Tensor]:
        """Yield the rows of Y in float64."""
        rows = max(AT_ONCE // self.columns, self.rows_at_once)
        for start in range(0, self._right.shape[0], rows):
            yield self.arithmetic.take(self._right[start : start + rows])

    def _add(self, rows: Tensor) -> None:
        triangle = triangle_of(torch.cat([self._triangle, rows]))
        self._triangle, self._gram = triangle, self._gram + rows.T @ rows

    def _merge(self, state: Mapping[str, Tensor]) -> None:
        self._triangle = triangle_of(torch.cat([self._triangle, state["_triangle"]]))
        self._gram = self._gram + state["_gram"]

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        # With [1, Y] = QR, the columns of R after the first are a triangle of Y, and below their first row a triangle
        # of its centred columns. Columns that centring makes zero are left out: they would add only roundoff.
        bordered = self.arithmetic.zeros(0, self.columns + 1)
        first = self.arithmetic.take(self._right[:1])
        varying = torch.zeros_like(first[0], dtype=torch.bool)
        for block in self._right_blocks():
            varying |= (block != first).any(0)
            joined = torch.cat([torch.ones_like(block[:, :1]), block], 1)
            bordered = self.arithmetic.eliminate(bordered, joined) if len(bordered) else triangle_of(joined)
        corner = bordered[:, 1:]
        raw, driver = arithmetic.singular_values(self._triangle @ corner.T, careful=careful)
        core = self._triangle[:, varying] @ corner[1:, varying].T
        centered, _ = arithmetic.singular_values(core, careful=careful)
        # A product of two triangles is exact to the product of their norms, which may cancel in it.
        factors = ((self._triangle, corner), (self._triangle[:, varying], corner[1:, varying]))
        scales = tuple(float(torch.linalg.norm(x) * torch.linalg.norm(y)) for x, y in factors)
        return Spectra(raw, centered, driver, scales=(scales[0], scales[1]))

    def _norms(self) -> Norms:
        square, total = self.arithmetic.zeros(self.columns, self.columns), self.arithmetic.zeros(self.columns)
        for block in self._right_blocks():
            self.arithmetic.add_square(square, block)
            total += block.sum(0)
        square = square.tril() + square.tril(-1).T
        M = self._right.shape[0]
        centered = square - torch.outer(total, total / M)
        shape = (int(self._totals[0]), M)
        return Norms(shape, float((self._gram * square).sum()), float((self._gram * centered).sum()))


def _rows_at_once(columns: int) -> int:
    """Return the number of rows of X or Y in one block."""
    return max(2048, BLOCK * columns)
