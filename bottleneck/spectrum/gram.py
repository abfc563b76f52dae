"""The streamed Gram matrix: exact for data of float32 precision, however many rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import numpy as np
from torch import Tensor

from ..errors import MatrixError
from .arithmetic import Arithmetic, Spectra
from .base import SpectrumMethod, Totals

RESOLUTION = 8 * math.sqrt(np.finfo(np.float64).eps)
"""Smallest σ/σ_1 it tells from zero: eigenvalues of AᵀA carry an error of a few eps · σ_1², so σ one of √eps · σ_1."""


@final
class Gram(SpectrumMethod):
    r"""Square roots of the eigenvalues of :math:`A^⊤A`, summed over blocks of rows in float64.

    What is summed is the row-centred Gram matrix :math:`C^⊤C` with C = A − m1ᵀ (m the rows' means), because it
    is far better conditioned: A's largest singular value lies along all-ones. The raw one follows from the same
    pass, :math:`A^⊤A = C^⊤C + v1^⊤ + 1v^⊤ + (m^⊤m) 11^⊤` with v = Cᵀm.

    Costs T·M² operations (BLAS ``syrk``, half a matrix product) plus 4/3 M³ for both spectra, and one M × M matrix of
    float64.
    """

    name = "gram"
    fields = ("_gram", "_mixed", "_totals")
    resolution = RESOLUTION
    summed = True

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self.rows_at_once = 2048  # every update reads and writes the whole Gram matrix
        self._gram = self.arithmetic.zeros(columns, columns)
        self._mixed = self.arithmetic.zeros(columns)

    def _add(self, rows: Tensor) -> None:
        means = rows.mean(1)
        centered = rows - means[:, None]
        totals, mixed = self._totals + Totals.of(rows, means), self._mixed + means @ centered
        self.arithmetic.add_square(self._gram, centered)
        self._totals, self._mixed = totals, mixed

    def merge(self, state: Mapping[str, Tensor]) -> None:
        """Add the sums over other rows."""
        self._gram += state["_gram"]
        self._mixed = self._mixed + state["_mixed"]
        self._totals = self._totals + state["_totals"]

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        squared_means = Totals.read(self._totals).squared_means
        squares = arithmetic.gram_spectra(self._gram, self._mixed, squared_means, careful=careful)
        # What roundoff left of zero may be negative.
        raw, centered = (np.sqrt(np.maximum(values, 0.0)) for values in (squares.raw, squares.centered))
        return Spectra(raw, centered, squares.driver)


def check_resolution(limit: float, sigma_1: float) -> None:
    """Refuse a tolerance finer than the Gram matrix can resolve.

    Raises:
        MatrixError: naming the method to use instead.
    """
    if sigma_1 > 0 and limit < RESOLUTION * sigma_1:
        raise MatrixError(
            f"the gram method resolves σ/σ_1 down to {RESOLUTION:.1e}, but the tolerance asked for is "
            f"{limit / sigma_1:.1e}: use --method tsqr, or an --eps that fits how the numbers were made"
        )
