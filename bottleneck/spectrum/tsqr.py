"""Tall-skinny QR: full float64 accuracy on a stream of rows, keeping one triangle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from ..errors import MatrixError
from .arithmetic import Arithmetic, Spectra
from .base import SpectrumMethod, Totals

BLOCK = 2
"""Rows of a block over its columns: QR of a block this tall works at the rate of matrix products."""

PANEL = 64
"""Columns that are moved at once."""


@final
class TSQR(SpectrumMethod):
    r"""The singular values of R in A = QR, updated block by block (Demmel et al. 2012, *Communication-optimal QR*).

    Each block B of 2M rows is eliminated against the triangle, :math:`\binom{R}{B} = Q \binom{R'}{0}`: on the CPU by
    its own QR and LAPACK's triangular-pentagonal ``tpqrt`` of triangle against triangle, which spend nothing on known
    zeros. Centring the rows of A acts on R alone, :math:`A (I - 11^⊤/M) = Q (R - \bar r 1^⊤)` with r̄ the rows' means
    of R, so one pass serves both spectra.

    Costs 2 T·M² operations for the stream, 8/3 M³ for both spectra, and four M × M matrices of float64, of which the
    block is two; resolves σ down to eps · σ_1.
    """

    name = "tsqr"
    fields = ("_triangle", "_waiting", "_totals")

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self.rows_at_once = 256
        self._triangle = self.arithmetic.zeros(columns, columns)
        self._block = self._new_block()
        self._filled = 0

    def _new_block(self) -> Tensor:
        # Column by column in memory, as LAPACK works in place on it.
        return self.arithmetic.zeros(self.columns, BLOCK * self.columns).T

    @property
    def _waiting(self) -> Tensor:
        """Rows that wait for the block to be full."""
        return self._block[: self._filled]

    @_waiting.setter
    def _waiting(self, rows: Tensor) -> None:
        self._block[: len(rows)] = rows
        self._filled = len(rows)

    def _add(self, rows: Tensor) -> None:
        totals = self._totals + Totals.of(rows)
        for piece in rows.split(len(self._block)):
            fitting = min(len(piece), len(self._block) - self._filled)
            self._append(piece[:fitting])
            self._append(piece[fitting:])
        self._totals = totals

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
            self._triangle = self.arithmetic.eliminate(self._triangle, rows)
        except torch.OutOfMemoryError as error:
            if len(rows) < 2:
                raise MatrixError(
                    f"{self.arithmetic.device} has no memory left for one row beside the tsqr method's matrices: "
                    "use --device cpu"
                ) from error
            torch.cuda.empty_cache()
            for half in rows.chunk(2):
                self._eliminate(half)

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Eliminate the triangle of other rows."""
        self._totals = self._totals + state["_totals"]
        self._triangle = self.arithmetic.eliminate(self._triangle, state["_triangle"], triangular=True)
        for piece in state["_waiting"].split(len(self._block)):
            self._flush()
            self._append(piece)

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        self._flush()
        self._block = self.arithmetic.zeros(0, self.columns)
        return arithmetic.triangle_spectra(self._triangle, careful=careful)


def _compacted(block: Tensor, rows: int) -> Tensor:
    """Return the first rows of a block as one piece of memory, column by column, within the block's own."""
    if rows == len(block):
        return block
    columns = block.shape[1]
    memory = block.T.reshape(-1)
    for start in range(0, columns, PANEL):
        panel = block.T[start : start + PANEL, :rows].clone()
        memory[start * rows : start * rows + panel.numel()] = panel.reshape(-1)
    return memory[: rows * columns].view(columns, rows).T
