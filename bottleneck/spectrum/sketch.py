"""A randomized row space with a measured residual, for vocabularies whose M × M matrix is too large for memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra, reflect_rows, triangle_of
from .base import Cost, Norms, Options, SpectrumMethod

COPIES = 4
"""Number of M × k float64 matrices held at the peak: sketch, input of the QR, Householder vectors, basis."""


@final
class Sketch(SpectrumMethod):
    r"""Singular values of the projection of A onto a k-dimensional row space, and the norm of the residual.

    The rows are centred first, and their means are a separate column (`reflect_rows`). So only the row-centred matrix
    C, of M − 1 columns, is sketched, and large means cost no digits. A first pass sums S = GC, with G Gaussian (k × T);
    an orthonormal basis V of S's rows is a near-optimal row space (Halko, Martinsson, Tropp 2011, algorithm 4.1). A
    second pass projects, B = [−√M m, CV], keeps only B's triangle, and sums the residual ρ² = ‖C − CVVᵀ‖²_F entry by
    entry.

    For any V, :math:`σ_i(B) ≤ σ_i(A) ≤ \sqrt{σ_i(B)^2 + ρ^2}`: values of B above the tolerance prove "rank ≥ r", and if
    ρ is also below the tolerance, r is the rank. The certificate is ‖B‖²_F + ρ² = ‖A‖²_F.

    The cost is 6 T·M·k operations, four M × k matrices and two passes over the rows.

    Args:
        columns: number of columns M.
        width: k; the largest rank that can be proved is k + 1.
        seed: seed of G, which changes the residual but not the validity of the bounds.
        arithmetic: arithmetic of the device to compute on.
    """

    name = "sketch"
    fields = ("_turned_sketch", "_seen", "_basis", "_triangle", "_outside", "_merged", "_projecting")
    passes = 2
    shared = ("_turned_sketch",)

    @classmethod
    def cost(cls, shape: tuple[int, int], options: Options) -> Cost:
        """Return the cost of `COPIES` matrices of k rows and three products with the rows."""
        sketch = shape[1] * options.width
        return Cost(COPIES * 8 * sketch, 6.0 * shape[0] * sketch, sketch)

    @classmethod
    def suits(cls, shape: tuple[int, int], eps: float, options: Options) -> str:
        """Suit every matrix for which no other method fits in memory."""
        return "it needs the least memory"

    @classmethod
    def build(cls, columns: Any, options: Options) -> SpectrumMethod:
        """Return a sketch of the given width and seed."""
        return cls(columns, width=options.width, seed=options.seed, arithmetic=options.arithmetic)

    def __init__(
        self, columns: int, *, width: int, seed: int | tuple[int, ...] = 0, arithmetic: Arithmetic | None = None
    ) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self.rows_at_once = 256
        self._width = min(width, columns - 1)
        self._seed = seed if isinstance(seed, tuple) else (seed,)
        self._turned_sketch = self.arithmetic.zeros(self._width, columns - 1)
        self._seen = self.arithmetic.zeros(1)
        self._basis = self.arithmetic.zeros(0, 0)
        self._triangle = self.arithmetic.zeros(0, self._width + 1)
        self._outside = self.arithmetic.zeros(1)
        self._merged = self.arithmetic.zeros(1)
        self._projecting = self.arithmetic.zeros(1)

    def _add(self, rows: Tensor) -> None:
        means, centered = reflect_rows(rows).split([1, self.columns - 1], 1)
        if not self._projecting:
            self._turned_sketch.addmm_(self._gaussian(len(rows)), centered)
            self._seen = self._seen + len(rows)
            return
        projected = centered @ self._basis
        rest = (centered - projected @ self._basis.T).reshape(-1)
        outside = rest @ rest
        triangle = triangle_of(torch.cat([self._triangle, torch.cat([means, projected], 1)]))
        self._outside, self._triangle, self._merged = self._outside + outside, triangle, self._merged + 1

    def _gaussian(self, rows: int) -> Tensor:
        """Return the columns of G for the next rows, which depend on the seed and the number of earlier rows."""
        entropy = np.random.SeedSequence([*self._seed, int(self._seen)])
        random = torch.Generator(self.arithmetic.device).manual_seed(int(entropy.generate_state(1)[0]))
        return torch.randn(self._width, rows, dtype=torch.float64, device=self.arithmetic.device, generator=random)

    def about(self) -> dict[str, Any]:
        """Return the method's settings, including width and seed."""
        return {**super().about(), "width": self._width, "seed": list(self._seed)}

    def end_pass(self) -> None:
        """Replace the sketch by an orthonormal basis."""
        self._basis = torch.linalg.qr(self._turned_sketch.T)[0]
        self._projecting = self._projecting + 1
        self._turned_sketch = self.arithmetic.zeros(0, self.columns - 1)
        self._totals = self.arithmetic.zeros(3)  # of the second pass alone

    def _merge(self, state: Mapping[str, Tensor]) -> None:
        self._outside = self._outside + state["_outside"]
        self._triangle = triangle_of(torch.cat([self._triangle, state["_triangle"]]))
        self._merged = self._merged + state["_merged"] + 1

    def _norms(self) -> Norms:
        return super()._norms()._replace(residual=float(self._outside) ** 0.5)

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        return arithmetic.pair(self._triangle, self._triangle[:, 1:], careful=careful)
