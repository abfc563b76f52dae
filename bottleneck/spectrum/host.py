"""BLAS and LAPACK on the CPU, in place: the routines that PyTorch does not offer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np
import scipy.linalg
import torch
from scipy.linalg.blas import dsymv, dsyr2, dsyrk
from scipy.linalg.lapack import dtpqrt
from torch import Tensor

from . import lapack
from .arithmetic import Arithmetic, Spectra, Values, toward_ones

SYRK_COLUMNS, AT_ONCE = 10_000, 1024
"""Most columns for ``syrk``, and columns of the products beyond. On two threads the syrk of OpenBLAS (in SciPy 1.17, on
AVX-512) writes beyond its buffer and crashes from 16,000 columns on, with rows of 2,048; 10,000 are tested."""
PANEL = 32
"""Number of columns that LAPACK eliminates at once in one update."""


@final
class Host(Arithmetic):
    """The CPU's arithmetic: BLAS ``syrk`` (half a matrix product), LAPACK ``tpqrt`` (which skips zeros), and both
    spectra from one reduction.
    """

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))

    def add_square(self, total: Tensor, rows: Tensor) -> None:
        """Add rowsᵀ rows to the lower triangle of ``total``."""
        columns = rows.shape[1]
        if columns > SYRK_COLUMNS:
            for start in range(0, columns, AT_ONCE):
                some = rows[:, start : start + AT_ONCE]
                strip = total[start : start + AT_ONCE, : start + AT_ONCE]
                strip[:, :start].addmm_(some.T, rows[:, :start])
                strip[:, start:].add_((some.T @ some).tril_())
            return
        # The transpose of a C-ordered array is Fortran-ordered, so LAPACK's upper triangle is our lower triangle.
        dsyrk(1.0, rows.numpy().T, beta=1.0, c=total.numpy().T, lower=0, overwrite_c=1)

    def eliminate(self, triangle: Tensor, rows: Tensor, *, triangular: bool = False) -> Tensor:
        """Return the triangle of both: QR of the rows alone in place, then triangle against triangle."""
        if not triangular:
            columnwise = rows.T.contiguous().T
            # The input is also the output, so PyTorch copies nothing.
            torch.geqrf(columnwise, out=(columnwise, rows.new_empty(min(rows.shape))))
            rows = columnwise[: rows.shape[1]]
        above, below = np.asfortranarray(triangle.numpy()), np.array(rows.numpy(), order="F")
        eliminated, _, _, info = dtpqrt(len(below), min(PANEL, len(above)), above, below, overwrite_a=1, overwrite_b=1)
        _check("tpqrt", info)
        return torch.from_numpy(eliminated)

    def gram_spectra(self, gram: Tensor, mixed: Tensor, squared_means: float, *, careful: bool) -> Spectra:
        r"""Return the eigenvalues of AᵀA and of CᵀC from one tridiagonalization, in place.

        A reflection P takes the direction of all-ones to the first axis, where CᵀC has a row and column of zeros:

        .. math:: P A^⊤A P = \begin{pmatrix} M\, m^⊤m & w^⊤ \\ w & B \end{pmatrix}, \quad
           P C^⊤C P = \begin{pmatrix} 0 & 0 \\ 0 & B \end{pmatrix}

        LAPACK's reduction of the lower triangle leaves the first axis unchanged, so the tridiagonal matrix of AᵀA
        without its first row and column is that of B, as accurate as if B had been reduced alone. The upper triangle
        keeps CᵀC for a second attempt, which decomposes both matrices separately.
        """
        on_host, v = gram.cpu(), mixed.cpu()
        if careful:
            centered, driver = self.eigenvalues(on_host, careful=True)
            whole = on_host + (v[:, None] + v[None, :] + squared_means)
            return Spectra(self.eigenvalues(whole, careful=True)[0], centered, driver)
        matrix = on_host.numpy().T
        _mirror(matrix)
        diagonal = matrix.diagonal().copy()
        try:
            return _tridiagonal_eigenvalues(matrix, v.numpy(), squared_means)
        finally:
            np.fill_diagonal(matrix, diagonal)

    def triangle_spectra(self, triangle: Tensor, *, careful: bool) -> Spectra:
        r"""Return both spectra from one bidiagonalization.

        LAPACK's ``gebrd`` transforms the first column from the left only, so R = U B Vᵀ with V keeping the first axis,
        and R' = U B' V'ᵀ with B' = B without its first column, which is bidiagonal again.
        """
        R = triangle.cpu()
        if careful:
            return self.pair(R, R[:, 1:], careful=True)
        diagonal, above = _bidiagonal(np.array(R.numpy(), order="F"))
        # Without its first column B is lower bidiagonal; a column of zeros makes it square.
        centered = bidiagonal_values(np.append(above, 0.0), diagonal[1:], lower=True)
        return Spectra(bidiagonal_values(diagonal, above), centered, "gebrd, bdsqr")

    def singular_values(self, matrix: Tensor, *, careful: bool) -> tuple[Values, str]:
        """Return the singular values by divide and conquer (``gesdd``), or by QR iteration (``gesvd``)."""
        on_host: Values = matrix.cpu().numpy()
        if not careful:
            return np.asarray(scipy.linalg.svdvals(on_host, check_finite=False)), "gesdd"
        values = scipy.linalg.svd(on_host, compute_uv=False, lapack_driver="gesvd", check_finite=False)
        return np.asarray(values, dtype=np.float64), "gesvd"

    def eigenvalues(self, matrix: Tensor, *, careful: bool) -> tuple[Values, str]:
        """Return the eigenvalues by divide and conquer (``syevd``), or relatively robust forms (``syevr``)."""
        on_host = matrix.cpu()
        if not careful:
            return torch.linalg.eigvalsh(on_host).numpy(), "syevd"
        values = scipy.linalg.eigh(on_host.numpy().T, lower=False, eigvals_only=True, driver="evr", check_finite=False)
        return np.asarray(values), "syevr"

    def attempts(self) -> Iterator[tuple[Arithmetic, bool]]:
        """Yield this arithmetic with its first and its second choice of routines."""
        yield self, False
        yield self, True


def _check(routine: str, info: int) -> None:
    if info != 0:
        raise np.linalg.LinAlgError(f"{routine} refused its argument {-info}")


def _mirror(matrix: Values) -> None:
    """Copy the upper triangle to the lower one, panel by panel, because NumPy would copy the whole matrix."""
    for start in range(0, len(matrix), PANEL):
        stop = start + PANEL
        matrix[stop:, start:stop] = matrix[start:stop, stop:].T
        corner = matrix[start:stop, start:stop]
        corner[:] = np.triu(corner) + np.triu(corner, 1).T


def _tridiagonal_eigenvalues(matrix: Values, mixed: Values, squared_means: float) -> Spectra:
    columns = len(mixed)
    reflector = toward_ones(columns).numpy()
    product = dsymv(2.0, matrix, reflector, lower=1)
    product -= (product @ reflector) * reflector
    matrix = dsyr2(-1.0, reflector, product, lower=1, a=matrix, overwrite_a=1)
    # P 1 = −√M e₁, and CᵀC 1 = 0 exactly, so the roundoff in the first column is replaced.
    matrix[:, 0] = -(columns**0.5) * (mixed - 2 * (reflector @ mixed) * reflector)
    matrix[0, 0] = columns * squared_means
    diagonal, below, routines = lapack.tridiagonal(matrix)
    centered = np.append(_of_tridiagonal(diagonal[1:], below[1:]), 0.0)
    return Spectra(_of_tridiagonal(diagonal, below), centered, f"{routines}, sterf")


def _of_tridiagonal(diagonal: Values, below: Values) -> Values:
    if diagonal.size == 0:
        return diagonal
    values = scipy.linalg.eigvalsh_tridiagonal(diagonal, below, lapack_driver="sterf", check_finite=False)
    return np.asarray(values, dtype=np.float64)


def _bidiagonal(matrix: Values) -> tuple[Values, Values]:
    """Reduce a square matrix by ``gebrd``; return the diagonal, (M,), and the superdiagonal, (M − 1,).

    Args:
        matrix: float64, (M, M), Fortran order; it is overwritten.
    """
    size = matrix.shape[0]
    diagonal, above = np.empty(size), np.empty(max(size - 1, 0))
    left, right = np.empty(size), np.empty(size)
    lapack.call_with_workspace("dgebrd", size, size, matrix, max(size, 1), diagonal, above, left, right)
    return diagonal, above


def bidiagonal_values(diagonal: Values, beside: Values, *, lower: bool = False) -> Values:
    """Return the singular values of a square bidiagonal matrix by ``bdsqr``: without vectors, Fernando and Parlett's
    dqds, each value to full relative accuracy.

    Args:
        diagonal: float64, (M,).
        beside: float64, (M − 1,), the superdiagonal, or the subdiagonal if ``lower``.
        lower: whether the matrix is lower bidiagonal.
    """
    values, other, unused = diagonal.copy(), np.append(beside, 0.0), np.empty(1)
    size = values.size
    lapack.call("dbdsqr", b"L" if lower else b"U", size, 0, 0, 0, values, other, unused, 1, unused, 1, unused, 1,
                np.empty(4 * size))  # fmt: skip
    return values
