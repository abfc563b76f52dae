"""Tall-skinny QR: full float64 accuracy on a stream of rows, with one triangle in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra, reflect_rows
from .base import QR_SHARE, Cost, Options, SpectrumMethod

BLOCK = 2
"""Rows of a block over its columns: QR of a block this tall works at the rate of matrix products."""

LEAST_BLOCK = 4096
"""Least number of rows of a block, because every merged block adds roundoff and a call."""

PANEL = 64
"""Number of columns that are moved at once."""


@final
class TSQR(SpectrumMethod):
    r"""The singular values of R in A = QR, updated block by block (Demmel et al. 2012, *Communication-optimal QR*).

    Each block B of 2M rows is eliminated against the triangle, :math:`\binom{R}{B} = Q \binom{R'}{0}`: on the CPU by
    its own QR and LAPACK's triangular-pentagonal ``tpqrt`` of triangle against triangle, which skip known zeros. The
    rows are centred first, and their means are a separate column (`reflect_rows`): R has the singular values of A, and
    without its first column those of the row-centred A. A QR's error in a column is relative to that column, so large
    means cost the centred spectrum no digits.

    The cost is 2 T·M² operations for the stream, 8/3 M³ for both spectra, and four M × M matrices of float64, of which
    the block takes two. The method resolves σ down to √(blocks) · eps · σ_1.
    """

    name = "tsqr"
    fields = ("_turned_triangle", "_waiting", "_merged")

    @classmethod
    def cost(cls, shape: tuple[int, int], options: Options) -> Cost:
        """Return the cost of the triangle, the block, the eliminations and both spectra."""
        T, M = shape
        operations = (2.0 * T * M**2 + 4.0 * min(T, M) ** 3) / QR_SHARE
        return Cost(options.arithmetic.tsqr_copies * 8 * M**2, operations, M**2)

    @classmethod
    def suits(cls, shape: tuple[int, int], eps: float, options: Options) -> str:
        """Suit matrices with at least as many contexts as tokens."""
        if shape[0] < shape[1]:
            return ""
        return f"accurate enough for entries with a roundoff of {eps:.3g}"

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self.rows_at_once = 256
        self._turned_triangle = self.arithmetic.zeros(columns, columns)
        self._block = self._new_block()
        self._filled = 0
        self._merged = self.arithmetic.zeros(1)

    def _new_block(self) -> Tensor:
        # Columns are contiguous in memory, because LAPACK works in place.
        return self.arithmetic.zeros(self.columns, max(LEAST_BLOCK, BLOCK * self.columns)).T

    @property
    def _waiting(self) -> Tensor:
        """Reflected rows of the block that is not yet full."""
        return self._block[: self._filled]

    @_waiting.setter
    def _waiting(self, rows: Tensor) -> None:
        self._block[: len(rows)] = rows
        self._filled = len(rows)

    def _add(self, rows: Tensor) -> None:
        for piece in reflect_rows(rows).split(len(self._block)):
            fitting = min(len(piece), len(self._block) - self._filled)
            self._append(piece[:fitting])
            self._append(piece[fitting:])

    def _append(self, rows: Tensor) -> None:
        self._block[self._filled : self._filled + len(rows)] = rows
        self._filled += len(rows)
        if self._filled == len(self._block):
            self._flush()

    def _flush(self) -> None:
        if self._filled:
            self._eliminate(_compacted(self._block, self._filled))
            self._filled = 0

    def _eliminate(self, rows: Tensor) -> None:
        try:
            self._turned_triangle = self.arithmetic.eliminate(self._turned_triangle, rows)
            self._merged = self._merged + 1
        except torch.OutOfMemoryError as error:
            half = self._half(rows, error)
            self._eliminate(rows[:half])
            self._eliminate(rows[half:])

    def _merge(self, state: Mapping[str, Tensor]) -> None:
        self._merged = self._merged + state["_merged"] + 1
        theirs = state["_turned_triangle"]
        self._turned_triangle = self.arithmetic.eliminate(self._turned_triangle, theirs, triangular=True)
        for piece in state["_waiting"].split(len(self._block)):
            self._flush()
            self._append(piece)

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        self._flush()
        self._block = self.arithmetic.zeros(0, self.columns)
        return arithmetic.triangle_spectra(self._turned_triangle, careful=careful)


def _compacted(block: Tensor, rows: int) -> Tensor:
    """Return the first rows of a block, moved within its memory so that their columns are contiguous."""
    if rows == len(block):
        return block
    columns = block.shape[1]
    memory = block.T.reshape(-1)
    for start in range(0, columns, PANEL):
        panel = block.T[start : start + PANEL, :rows].clone()
        memory[start * rows : start * rows + panel.numel()] = panel.reshape(-1)
    return memory[: rows * columns].view(columns, rows).T
