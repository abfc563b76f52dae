"""The streamed Gram matrix: exact for data of float32 precision, however many rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import numpy as np
import scipy.linalg
from scipy.linalg.blas import dsymv, dsyr2, dsyrk
from scipy.linalg.lapack import dsytrd, dsytrd_lwork

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

    Costs T·M² operations (BLAS ``syrk``, half a matrix product) plus 4/3 M³ for both spectra, and one M × M matrix of
    float64.
    """

    name = "gram"
    fields = ("_centered", "_mixed", "_totals")
    rows_at_once = 2048  # every update reads and writes the whole Gram matrix

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
        """Return the spectrum of all rows given; the sums are used up."""
        totals = Totals.read(self._totals)
        check_scale(totals.squared_norm)
        columns = self._centered.shape[0]
        with lapack(self.name):
            raw, centered = _eigenvalues(self._centered, self._mixed, totals.squared_means)
        return certified(
            np.sqrt(np.maximum(raw, 0.0)),  # what roundoff left of zero may be negative
            np.sqrt(np.maximum(centered, 0.0)),
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


def _eigenvalues(centered: Matrix, mixed: Matrix, squared_means: float) -> tuple[Matrix, Matrix]:
    r"""Return the eigenvalues of AᵀA and of CᵀC from one tridiagonalization; ``centered`` is overwritten.

    A reflection P takes the direction of all-ones to the first axis, where CᵀC has a row and column of zeros:

    .. math:: P A^⊤A P = \begin{pmatrix} M\, m^⊤m & w^⊤ \\ w & B \end{pmatrix}, \quad
       P C^⊤C P = \begin{pmatrix} 0 & 0 \\ 0 & B \end{pmatrix}

    LAPACK's ``sytrd`` (lower) never touches the first axis again, so the tridiagonal matrix of AᵀA without its first
    row and column is that of B, as accurate as if B had been reduced alone.

    Args:
        centered: CᵀC, its lower triangle, Fortran order.
        mixed: v = Cᵀm.
        squared_means: mᵀm.
    """
    columns = len(mixed)
    reflector = np.full(columns, columns**-0.5)
    reflector[0] += 1.0
    reflector /= np.linalg.norm(reflector)
    product = dsymv(2.0, centered, reflector, lower=1)
    product -= (product @ reflector) * reflector
    matrix = dsyr2(-1.0, reflector, product, lower=1, a=centered, overwrite_a=1)
    # P 1 = −√M e₁, and CᵀC 1 = 0 exactly: what roundoff left in the first column is replaced.
    matrix[:, 0] = -(columns**0.5) * (mixed - 2 * (reflector @ mixed) * reflector)
    matrix[0, 0] = columns * squared_means
    work = int(dsytrd_lwork(columns, lower=1)[0])
    _, diagonal, below, _, _ = dsytrd(matrix, lower=1, lwork=work, overwrite_a=1)
    raw = _of_tridiagonal(diagonal, below)
    return raw, np.append(_of_tridiagonal(diagonal[1:], below[1:]), 0.0)


def _of_tridiagonal(diagonal: Matrix, below: Matrix) -> Matrix:
    if diagonal.size == 0:
        return diagonal
    found = scipy.linalg.eigvalsh_tridiagonal(diagonal, below, lapack_driver="sterf", check_finite=False)
    return np.asarray(found, dtype=np.float64)
