"""The Gram matrix of the smaller side: exact for data of float32 precision, and streamed where T ≥ M."""

from __future__ import annotations

import math
from typing import final

import numpy as np
import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra
from .base import SpectrumMethod, State, Stream
from .dense import KeptRows

RESOLUTION = 8 * math.sqrt(np.finfo(np.float64).eps)
"""Smallest σ/σ_1 that is resolved: eigenvalues of AᵀA have an error of a few eps · σ_1², so σ has one of √eps · σ_1."""

COLUMNS = 8192
"""Tokens in one block of columns, which is held in float64 beside the rows."""


class Gram(SpectrumMethod):
    r"""Square roots of the eigenvalues of :math:`A^⊤A`, summed over blocks of rows in float64.

    The sum is over the row-centred Gram matrix :math:`C^⊤C` with C = A − m1ᵀ (m the rows' means), because it is far
    better conditioned: A's largest singular value has a direction near all-ones. The raw Gram matrix follows from the
    same pass, :math:`A^⊤A = C^⊤C + v1^⊤ + 1v^⊤ + (m^⊤m) 11^⊤` with v = Cᵀm. The state is CᵀC and v.

    The cost is T·M² operations (BLAS ``syrk``, half a matrix product) plus 4/3 M³ for both spectra, and one M × M
    matrix of float64.
    """

    name = "gram"
    resolution = RESOLUTION
    block = (2048, "C")  # every block reads and writes the whole Gram matrix

    def init(self) -> State:
        """Return zeros."""
        return self.arithmetic.zeros(self.columns, self.columns), self.arithmetic.zeros(self.columns)

    def add(self, state: State, rows: Tensor) -> State:
        """Add to both sums."""
        gram, mixed = state
        means = rows.mean(1)
        centered = rows - means[:, None]
        mixed = mixed + means @ centered
        self.arithmetic.add_square(gram, centered)
        return gram, mixed

    def merge(self, one: State, other: State) -> State:
        """Add both sums."""
        return one[0].add_(other[0]), one[1] + other[1]

    def decompose(self, stream: Stream, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        """Decompose CᵀC and AᵀA."""
        gram, mixed = stream.state
        return _roots(arithmetic.gram_spectra(gram, mixed, float(stream.totals[2]), careful=careful))


@final
class WideGram(KeptRows):
    r"""Square roots of the eigenvalues of :math:`A A^⊤`, T × T.

    The rows are kept; the products are formed in float64 over blocks of columns at the end. The sum is :math:`C C^⊤` of
    the row-centred C; because C1 = 0, :math:`A A^⊤ = C C^⊤ + M\,m m^⊤` with m the rows' means.

    The cost is T²·M operations (BLAS ``syrk``) plus 4/3 T³ for each spectrum, and the memory of the rows and three
    T × T matrices of float64.
    """

    name = "gram"
    resolution = RESOLUTION

    def decompose(self, stream: Stream, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        """Form and decompose C Cᵀ and A Aᵀ."""
        means = torch.cat([rows.mean(1, dtype=torch.float64) for rows in stream.state]).to(arithmetic.device)
        gram = arithmetic.zeros(len(means), len(means))
        for start in range(0, self.columns, COLUMNS):
            columns = torch.cat([rows[:, start : start + COLUMNS] for rows in stream.state])
            centered = columns.to(arithmetic.device).double() - means[:, None]
            arithmetic.add_square(gram, centered.T.contiguous())
        centered_squares, driver = arithmetic.eigenvalues(gram, careful=careful)
        squares, _ = arithmetic.eigenvalues(gram.addr_(means, means, alpha=self.columns), careful=careful)
        return _roots(Spectra(squares, centered_squares, driver))


def _roots(squares: Spectra) -> Spectra:
    """Return the square roots of eigenvalues; roundoff may make one of zero negative."""
    raw, centered = (np.sqrt(np.maximum(values, 0.0)) for values in (squares.raw, squares.centered))
    return squares._replace(raw=raw, centered=centered)
