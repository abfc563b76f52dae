"""The streamed Gram matrix: exact for data of float32 precision, however many rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import numpy as np
import scipy.linalg
from scipy.linalg.blas import dsyrk

from ..errors import MatrixError
from .base import Matrix, Spectrum, SpectrumMethod, Totals, certified, check_scale, lapack

RESOLUTION = 8 * math.sqrt(np.finfo(np.float64).eps)
"""Smallest σ/σ_1 it tells from zero: eigenvalues of AᵀA carry an error of a few eps · σ_1², so σ one of √eps · σ_1."""


@final
class Gram(SpectrumMethod):
    r"""Square roots of the eigenvalues of :math:`A^⊤A`, summed over blocks of rows in float64.

    What is summed is the row-centred Gram matrix :math:`C^⊤C` with C = A − m1ᵀ (m the rows' means), because it
    is far better conditioned: A's largest singular value lies along all-ones. The raw one follows from the same
    pass, :math:`A^⊤A = C^⊤C + v1^⊤ + 1v^⊤ + (m^⊤m) 11^⊤` with v = Cᵀm.

    Costs T·M² operations (BLAS ``syrk``, half a matrix product) plus 4/3 M³ for each of the two spectra, and two
    M × M matrices of float64.
    """

    name = "gram"
    fields = ("_centered", "_mixed", "_totals")

    def __init__(self, columns: int) -> None:
        self._centered = np.zeros((columns, columns), order="F")
        self._mixed = np.zeros(columns)
        self._totals = np.zeros(3)

    def update(self, rows: Matrix) -> None:
        """Add the next rows: float64, (n, M)."""
        means = rows.mean(axis=1)
        centered = rows - means[:, None]
        self._totals = self._totals + Totals.of(rows)
        self._mixed = self._mixed + centered.T @ means
        self._centered = dsyrk(1.0, centered.T, beta=1.0, c=self._centered, lower=1, overwrite_c=1)

    def merge(self, state: Mapping[str, Matrix]) -> None:
        """Add the sums over other rows."""
        self._centered += state["_centered"]
        self._mixed = self._mixed + state["_mixed"]
        self._totals = self._totals + state["_totals"]

    def finish(self) -> Spectrum:
        """Return the spectrum of all rows given."""
        totals = Totals.read(self._totals)
        check_scale(totals.squared_norm)
        columns = self._centered.shape[0]
        raw = self._centered.copy(order="F")
        raw += self._mixed[:, None]
        raw += self._mixed[None, :]
        raw += totals.squared_means
        return certified(
            _roots(raw),
            _roots(self._centered),
            shape=(totals.rows, columns),
            method=self.name,
            squared_norm=totals.squared_norm,
            centered_squared_norm=totals.squared_norm - columns * totals.squared_means,
        )


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


def _roots(gram: Matrix) -> Matrix:
    """Return the singular values: square roots of the eigenvalues, negative roundoff taken as zero."""
    with lapack(Gram.name):
        eigenvalues = scipy.linalg.eigvalsh(gram, lower=True, overwrite_a=True, check_finite=False)
    return np.sqrt(np.maximum(eigenvalues, 0.0))
