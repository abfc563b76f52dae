"""A randomized row space with a measured residual, for vocabularies whose M × M matrix is too large for memory."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra, reflect_rows, triangle_of
from .base import SpectrumMethod, State, Stream
from .host import Host


@final
class RangeFinder:
    r"""The first pass of a sketch: a k-dimensional row space that is near-optimal for A.

    The rows are centred first, and their means are a separate column (`reflect_rows`). So only the row-centred matrix
    C, of M − 1 columns, is sketched, and large means cost no digits. The state is S = GC, with G Gaussian (k × T), and
    the number of rows; an orthonormal basis V of S's rows spans the row space (Halko, Martinsson, Tropp 2011, algorithm
    4.1). It makes no spectrum: `projection` returns the method of the second pass.

    Args:
        columns: number of columns M.
        width: k; the largest rank that can be proved is k + 1.
        seed: seed of G, which changes the residual but not the validity of the bounds.
        arithmetic: arithmetic of the device to compute on.
    """

    name = "sketch"
    block = (256, "C")

    def __init__(
        self, columns: int, *, width: int, seed: tuple[int, ...] = (0,), arithmetic: Arithmetic | None = None
    ) -> None:
        self.columns, self.arithmetic = columns, arithmetic or Host()
        self._width, self._seed = min(width, columns - 1), seed

    def init(self) -> State:
        """Return zeros."""
        return self.arithmetic.zeros(self._width, self.columns - 1), self.arithmetic.zeros(1)

    def add(self, state: State, rows: Tensor) -> State:
        """Add the product of the rows with the next columns of G, which depend on the seed and the rows before."""
        sketch, count = state
        entropy = np.random.SeedSequence([*self._seed, int(count)])
        random = torch.Generator(self.arithmetic.device).manual_seed(int(entropy.generate_state(1)[0]))
        gaussian = torch.randn(
            self._width, len(rows), dtype=torch.float64, device=self.arithmetic.device, generator=random
        )
        return sketch.addmm_(gaussian, reflect_rows(rows)[:, 1:]), count + len(rows)

    def projection(self, sketch: Tensor) -> Projection:
        """Return the method of the second pass, for the sum S of all processes."""
        return Projection(torch.linalg.qr(sketch.T)[0], arithmetic=self.arithmetic)


@final
class Projection(SpectrumMethod):
    r"""The second pass of a sketch: singular values of the projection of A onto a row space, and the residual's norm.

    The projection is B = [−√M m, CV]; the state is B's triangle, ρ² = ‖C − CVVᵀ‖²_F, summed entry by entry, and the
    number of blocks. For any V, :math:`σ_i(B) ≤ σ_i(A) ≤ \sqrt{σ_i(B)^2 + ρ^2}`: values of B above the tolerance prove
    "rank ≥ r", and if ρ is also below the tolerance, r is the rank. The certificate is ‖B‖²_F + ρ² = ‖A‖²_F.

    Both passes take 6 T·M·k operations and four M × k matrices.

    Args:
        basis: V, (M − 1, k).
        arithmetic: arithmetic of the device to compute on.
    """

    name = "sketch"

    def __init__(self, basis: Any, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(len(basis) + 1, arithmetic=arithmetic)
        self._basis = basis

    def init(self) -> State:
        """Return a triangle of no rows."""
        zeros = self.arithmetic.zeros
        return zeros(0, self._basis.shape[1] + 1), zeros(1), zeros(1)

    def add(self, state: State, rows: Tensor) -> State:
        """Project the rows, and add what is outside."""
        means, centered = reflect_rows(rows).split([1, self.columns - 1], 1)
        projected = centered @ self._basis
        rest = (centered - projected @ self._basis.T).reshape(-1)
        return self.merge(state, (torch.cat([means, projected], 1), rest @ rest, self.arithmetic.zeros(1)))

    def merge(self, one: State, other: State) -> State:
        """Put both triangles on top of each other."""
        return triangle_of(torch.cat([one[0], other[0]])), one[1] + other[1], one[2] + other[2] + 1

    def decompose(self, stream: Stream, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        """Decompose the triangle with and without its first column."""
        triangle, outside, blocks = stream.state
        spectra = arithmetic.pair(triangle, triangle[:, 1:], careful=careful)
        return spectra._replace(blocks=float(blocks), residual=float(outside) ** 0.5)
