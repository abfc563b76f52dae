"""Tall-skinny QR: full float64 accuracy on a stream of rows, with one triangle in memory."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor

from .arithmetic import Arithmetic, Spectra, reflect_rows
from .base import SpectrumMethod, State, Stream

BLOCK = 2
"""Rows of a block over its columns: QR of a block this tall works at the rate of matrix products."""

LEAST_BLOCK = 4096
"""Least number of rows of a block, because every merged block adds roundoff and a call."""

IN_CACHE = 256
"""Number of rows that are reflected at once."""


@final
class TSQR(SpectrumMethod):
    r"""The singular values of R in A = QR, updated block by block (Demmel et al. 2012, *Communication-optimal QR*).

    Each block B of 2M rows is eliminated against the triangle, :math:`\binom{R}{B} = Q \binom{R'}{0}`: on the CPU by
    its own QR and LAPACK's triangular-pentagonal ``tpqrt`` of triangle against triangle, which skip known zeros. The
    rows are centred first, and their means are a separate column (`reflect_rows`): R has the singular values of A, and
    without its first column those of the row-centred A. A QR's error in a column is relative to that column, so large
    means cost the centred spectrum no digits. The state is R and the number of blocks.

    The cost is 2 T·M² operations for the stream, 8/3 M³ for both spectra, and four M × M matrices of float64, of which
    the block takes two. The method resolves σ down to √(blocks) · eps · σ_1.
    """

    name = "tsqr"

    def __init__(self, columns: Any, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self.block = max(LEAST_BLOCK, BLOCK * columns), "F"  # LAPACK works in place on contiguous columns

    def init(self) -> State:
        """Return a triangle of zeros."""
        return self.arithmetic.zeros(self.columns, self.columns), self.arithmetic.zeros(1)

    def add(self, state: State, rows: Tensor) -> State:
        """Eliminate the reflected rows."""
        triangle, blocks = state
        for some in rows.split(IN_CACHE):
            some.copy_(reflect_rows(some))
        return self.arithmetic.eliminate(triangle, rows), blocks + 1

    def merge(self, one: State, other: State) -> State:
        """Eliminate the other triangle."""
        return self.arithmetic.eliminate(one[0], other[0], triangular=True), one[1] + other[1] + 1

    def decompose(self, stream: Stream, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        """Decompose R with and without its first column."""
        triangle, blocks = stream.state
        return arithmetic.triangle_spectra(triangle, careful=careful)._replace(blocks=float(blocks))
