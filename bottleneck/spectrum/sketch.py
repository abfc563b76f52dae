"""A randomized row space with a measured residual: for vocabularies whose M × M matrix fits nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
import scipy.linalg

from .base import Matrix, Spectrum, SpectrumMethod, Totals, certified, check_scale, lapack

COPIES = 4
"""M × k float64 matrices that it holds at its peak: sketch, QR's input, its Householder vectors, the basis."""


@final
class Sketch(SpectrumMethod):
    r"""Singular values of A seen through a k-dimensional row space, with what lies outside it measured.

    A first pass sums S = GC, with G Gaussian (k × T) and C the row-centred A; an orthonormal basis V of S's rows is a
    near-optimal row space (Halko, Martinsson, Tropp 2011, algorithm 4.1). All-ones, which centring projects out, is
    added to it exactly. A second pass projects, B = A [V, 1/√M], keeps only B's triangle, and adds up the residual
    ρ² = ‖A − B [V, 1/√M]ᵀ‖²_F entry by entry.

    However V came out, :math:`σ_i(B) ≤ σ_i(A) ≤ \sqrt{σ_i(B)^2 + ρ^2}`: values of B above the tolerance prove
    "rank ≥ r", and when ρ lies below it too, they are the rank. The certificate is ‖B‖²_F + ρ² = ‖A‖²_F.

    Costs 6 T·M·k operations and four M × k matrices. The rows must come twice.

    Args:
        columns: M.
        width: k; the largest rank that can be proved is k + 1.
        seed: of G. It decides how small the residual is, never whether the statement is true.
    """

    name = "sketch"
    fields = ("_triangle", "_outside", "_totals")
    rows_at_once = 256
    passes = 2
    shared = ("_sketch",)

    def __init__(self, columns: int, *, width: int, seed: int | tuple[int, ...] = 0) -> None:
        self._width = min(width, columns - 1)
        self._random = np.random.default_rng(seed)
        self._sketch = np.zeros((self._width, columns))
        self._basis: Matrix | None = None
        self._triangle = np.zeros((0, self._width + 1))
        self._outside = np.zeros(1)
        self._totals = np.zeros(3)

    def update(self, rows: Matrix) -> None:
        """Take the next rows of this pass: float64, (n, M)."""
        if self._basis is None:
            centered = rows - rows.mean(axis=1, keepdims=True)
            self._sketch = self._sketch + self._random.standard_normal((self._width, len(rows))) @ centered
            return
        projected = rows @ self._basis
        rest = rows - projected @ self._basis.T
        self._outside = self._outside + np.einsum("ij,ij->", rest, rest)
        self._triangle = _triangle(self._triangle, projected)
        self._totals = self._totals + Totals.of(rows)

    def end_pass(self) -> None:
        """Turn the sketch into an orthonormal basis, all-ones last."""
        columns = self._sketch.shape[1]
        ones = np.full((columns, 1), columns**-0.5)
        # All-ones goes first, so that QR takes what roundoff left of it out of the others.
        basis = scipy.linalg.qr(np.hstack([ones, self._sketch.T]), mode="economic", check_finite=False)[0]
        self._basis = np.hstack([basis[:, 1:], ones])
        self._sketch = np.zeros((0, columns))

    def merge(self, state: Mapping[str, Matrix]) -> None:
        """Take in the triangle and the residual of other rows."""
        self._outside = self._outside + state["_outside"]
        self._triangle = _triangle(self._triangle, state["_triangle"])
        self._totals = self._totals + state["_totals"]

    def finish(self) -> Spectrum:
        """Return the spectrum seen, and the residual."""
        totals = Totals.read(self._totals)
        check_scale(totals.squared_norm)
        columns = self._sketch.shape[1]
        with lapack(self.name):
            values = scipy.linalg.svdvals(self._triangle, check_finite=False)
            centered = scipy.linalg.svdvals(self._triangle[:, :-1], check_finite=False)
        return certified(
            values,
            centered,
            shape=(totals.rows, columns),
            method=self.name,
            squared_norm=totals.squared_norm,
            centered_squared_norm=totals.squared_norm - columns * totals.squared_means,
            residual=float(np.sqrt(self._outside[0])),
        )


def _triangle(above: Matrix, below: Matrix) -> Matrix:
    return np.asarray(np.linalg.qr(np.concatenate([above, below]), mode="r"))
