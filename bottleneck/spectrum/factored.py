"""A = X Yᵀ with thin factors: the exact spectrum without ever forming A."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from .arithmetic import Arithmetic, Norms, Spectra, symmetric, triangle_of, triangle_of_blocks
from .base import SpectrumMethod, State, Stream

BLOCK = 2
"""Rows of a block over its columns: QR of a block this tall works at the rate of matrix products."""
AT_ONCE, SMALLEST_BLOCK = 1 << 25, 2048
"""Entries of Y that are one block, and its least number of rows: less would not work at the rate of large products."""
NEAR_ORTHONORMAL = 5 / 64
"""Largest ‖QᵀQ − I‖ after the first step of CholeskyQR2 (Yamamoto et al. 2015, Lemma 3.1)."""


@final
class Factored(SpectrumMethod):
    r"""Singular values of :math:`X Y^⊤` from two thin QR factorizations, :math:`σ(R_X R_Y^⊤)`.

    For a log-linear head X = [H, 1, −log Z] and Y = [W, b, 1], so that :math:`X Y^⊤ = \log P`. Rows of X are
    streamed: the state is their r × r triangle (a QR of the triangle on top of each new block) and XᵀX. Centring the
    rows of A centres the columns of Y: :math:`A (I - 11^⊤/M) = X (Y - 1\bar y^⊤)^⊤`; one QR of [1, Y] gives both.

    Y is read in blocks too, twice. The method is exact to float64 and takes 3 (T + M) r² operations, those with M as
    matrix products. The certificate is the identity ‖A‖²_F = tr(XᵀX YᵀY), with both summed separately from the QR.

    Args:
        right: Y, (M, r): an array, or anything with a shape whose slices are arrays.
        arithmetic: arithmetic of the device to compute on.
    """

    name = "factored"

    def __init__(self, right: Any, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(right.shape[1], arithmetic=arithmetic)
        self.block = rows_at_once(self.columns), "C"
        self._right = right

    def init(self) -> State:
        """Return a triangle of no rows, and zeros."""
        return self.arithmetic.zeros(0, self.columns), self.arithmetic.zeros(self.columns, self.columns)

    def add(self, state: State, rows: Tensor) -> State:
        """Put the rows below the triangle."""
        return self.merge(state, (rows, rows.T @ rows))

    def merge(self, one: State, other: State) -> State:
        """Put both triangles on top of each other."""
        return triangle_of(torch.cat([one[0], other[0]])), one[1] + other[1]

    def _right_blocks(self, rows: int = 0) -> Iterator[Tensor]:
        """Yield the rows of [1, Y] in float64."""
        rows = rows or max(AT_ONCE // self.columns, SMALLEST_BLOCK)
        for start in range(0, self._right.shape[0], rows):
            block = self.arithmetic.take(self._right[start : start + rows])
            yield torch.cat([torch.ones_like(block[:, :1]), block], 1)

    @cached_property
    def _right_gram(self) -> tuple[Tensor, Tensor]:
        """Return the Gram matrix of [1, Y], and which of its columns vary, with the first one."""
        size = self.columns + 1
        gram, first = self.arithmetic.zeros(size, size), next(self._right_blocks(1))
        varies = torch.zeros_like(first[0], dtype=torch.bool)
        varies[0] = True
        for block in self._right_blocks():
            varies |= (block != first).any(0)
            self.arithmetic.add_square(gram, block)
        return symmetric(gram), varies

    def decompose(self, stream: Stream, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        """Decompose the product of the triangles of X and Y."""
        left, left_gram = stream.state
        # With [1, Y] = QR, the columns of R after the first are a triangle of Y, and below their first row a triangle
        # of its centred columns. Constant columns are multiples of the first one, so that centring makes them zero.
        triangle = self._right_triangle(careful=careful)
        gram, varies = self._right_gram
        square, total, varies, M = gram[1:, 1:], gram[0, 1:], varies[1:], self._right.shape[0]
        corner = triangle.new_zeros(len(triangle), self.columns)
        corner[:, varies] = triangle[:, 1:]
        corner[0, ~varies] = triangle[0, 0] * next(self._right_blocks(1))[0, 1:][~varies]
        # X Yᵀ without its first column, that of the means, is the centred product: one bidiagonalization gives both.
        product = left @ corner.T
        spectra = arithmetic.triangle_spectra(_square(product), careful=careful)
        size = min(product.shape[0], self.columns)
        raw = np.sort(spectra.raw)[::-1][:size]
        centered = np.sort(spectra.centered)[::-1][: min(size, int(varies.sum()))]
        # A product of two triangles is exact to the product of their norms, which may cancel in it.
        scale = torch.linalg.norm(left) * torch.linalg.norm(corner)
        centered_scale = torch.linalg.norm(left[:, varies]) * torch.linalg.norm(corner[1:])
        centered_square = square - torch.outer(total, total / M)
        squared, centered_squared = (float((left_gram * each).sum()) for each in (square, centered_square))
        norms = Norms((int(stream.totals[0]), M), squared, centered_squared, bool(product.any()))
        return Spectra(raw, centered, spectra.driver, scales=(float(scale), float(centered_scale)), norms=norms)

    def _right_triangle(self, *, careful: bool) -> Tensor:
        """Return R of the columns of [1, Y] that vary, (min(M, columns), columns), with the first one.

        CholeskyQR2 (Yamamoto et al. 2015) consists of matrix products: R₁ of the Gram matrix, then R₂ of the Gram
        matrix of Y R₁⁻¹, and R = R₂ R₁. It is as accurate as Householder's QR if Y R₁⁻¹ is near orthonormal, which
        is checked; otherwise, and for ``careful``, Householder's QR is used.
        """
        gram, kept = self._right_gram
        lower, failed = torch.linalg.cholesky_ex(gram[kept][:, kept])
        if not (careful or failed):
            again = self.arithmetic.zeros(len(lower), len(lower))
            for block in self._right_blocks():
                columns = torch.linalg.solve_triangular(lower, block[:, kept].T, upper=False)
                self.arithmetic.add_square(again, columns.T)
            again = symmetric(again)
            identity = torch.eye(len(again), dtype=again.dtype, device=again.device)
            if torch.linalg.norm(again - identity) < NEAR_ORTHONORMAL:
                return torch.linalg.cholesky(again).T @ lower.T
        blocks = self._right_blocks(max(AT_ONCE // self.columns, self.block[0]))
        return triangle_of_blocks(block[:, kept] for block in blocks)


def _square(matrix: Tensor) -> Tensor:
    """Return a square matrix with the same singular values, and the same ones without its first column."""
    if len(matrix) > matrix.shape[1]:
        return triangle_of(matrix)
    return torch.cat([matrix, matrix.new_zeros(matrix.shape[1] - len(matrix), matrix.shape[1])])


def rows_at_once(columns: int) -> int:
    """Return the number of rows of X or Y in one block."""
    return max(SMALLEST_BLOCK, BLOCK * columns)
