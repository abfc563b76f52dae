"""The linear algebra that the methods use, in float64, on one device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[np.float64]


class Norms(NamedTuple):
    """What the spectrum of a matrix is checked against."""

    shape: tuple[int, int]
    """(T, M)."""
    squared: float
    """‖A‖²_F, computed without the decomposition."""
    centered_squared: float
    """Squared norm of the row-centred matrix."""
    has_numbers: bool
    """Whether an entry is not 0."""


class Spectra(NamedTuple):
    """Two lists of values, in any order, from one matrix."""

    raw: Values
    centered: Values
    """Values of the row-centred matrix."""
    driver: str
    """The routines that computed them."""
    scales: tuple[float, float] | None = None
    """Scales of their errors, raw and centred; by default the largest values."""
    blocks: float = 0.0
    """Number of blocks that were merged, whose errors add up like a random walk."""
    residual: float = 0.0
    """Frobenius norm of the part of the matrix that the values do not cover."""
    norms: Norms | None = None
    """Norms of the matrix, where its rows are not the ones that were streamed."""


class Arithmetic(ABC):
    """The operations that a `SpectrumMethod` needs: sums of squares, orthogonal elimination, decompositions.

    Tensors are float64 and on ``device``; a decomposition takes tensors from any device.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def zeros(self, *shape: int) -> Tensor:
        """Return zeros."""
        return torch.zeros(*shape, dtype=torch.float64, device=self.device)

    def take(self, rows: Any) -> Tensor:
        """Return an array or tensor as float64 on this device, without a copy if nothing changes."""
        if isinstance(rows, Tensor):
            return rows.detach().to(self.device, torch.float64)
        array = np.asarray(rows, dtype=np.float64)
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self.device)

    @abstractmethod
    def add_square(self, total: Tensor, rows: Tensor) -> None:
        """Add rowsᵀ rows to ``total`` in place; its lower triangle is enough.

        Args:
            total: (M, M).
            rows: (n, M).
        """

    @abstractmethod
    def eliminate(self, triangle: Tensor, rows: Tensor, *, triangular: bool = False) -> Tensor:
        r"""Return R' of :math:`\binom{R}{B} = Q \binom{R'}{0}`; both inputs may be overwritten.

        Args:
            triangle: R, (M, M), upper triangular.
            rows: B, (n, M); best column by column in memory.
            triangular: whether B is an upper triangle too, whose zeros cost nothing.
        """

    @abstractmethod
    def gram_spectra(self, gram: Tensor, mixed: Tensor, squared_means: float, *, careful: bool) -> Spectra:
        """Return the eigenvalues of AᵀA and of CᵀC, C the row-centred A.

        Args:
            gram: CᵀC, (M, M), as `add_square` leaves it.
            mixed: v = Cᵀm with m the rows' means, (M,).
            squared_means: mᵀm.
            careful: whether to use the second choice of routine, after the first has failed.
        """

    @abstractmethod
    def triangle_spectra(self, triangle: Tensor, *, careful: bool) -> Spectra:
        """Return the singular values of R and of R without its first column.

        Args:
            triangle: R, (M, M), which is not changed.
            careful: whether to use the second choice of routine.
        """

    @abstractmethod
    def singular_values(self, matrix: Tensor, *, careful: bool) -> tuple[Values, str]:
        """Return the singular values of a matrix of any shape, and the routine that computed them."""

    @abstractmethod
    def eigenvalues(self, matrix: Tensor, *, careful: bool) -> tuple[Values, str]:
        """Return the eigenvalues of a symmetric matrix, read from its lower triangle, and the routine used."""

    @abstractmethod
    def attempts(self) -> Iterator[tuple[Arithmetic, bool]]:
        """Yield pairs of an arithmetic and ``careful``, in the order in which a decomposition should try them."""

    def pair(self, raw: Tensor, centered: Tensor, *, careful: bool) -> Spectra:
        """Return the singular values of two matrices."""
        first, driver = self.singular_values(raw, careful=careful)
        return Spectra(first, self.singular_values(centered, careful=careful)[0], driver)


def triangle_of(matrix: Tensor) -> Tensor:
    """Return R of a thin QR factorization: (n, r) → (min(n, r), r)."""
    factor: Tensor = torch.linalg.qr(matrix, mode="r")[1]
    return factor


def triangle_of_blocks(blocks: Iterable[Tensor]) -> Tensor:
    """Return R of a thin QR factorization of blocks of rows; a Gram matrix would lose half of the digits."""
    triangle: Tensor | None = None
    for rows in blocks:
        triangle = triangle_of(rows if triangle is None else torch.cat([triangle, rows]))
    return torch.zeros(0, 0) if triangle is None else triangle


def symmetric(matrix: Tensor) -> Tensor:
    """Return a full symmetric matrix from its lower triangle, because a state of `Host` holds only that."""
    return torch.tril(matrix) + torch.tril(matrix, -1).T


def reflect_rows(rows: Tensor) -> Tensor:
    r"""Return A P for the reflection P of `toward_ones`: the row means' column −√M m, and the row-centred matrix.

    The rows are centred first, so that large means do not cost the centred rows any digits. The reflected matrix has
    A's singular values; without its first column, those of the row-centred A.

    Args:
        rows: (n, M).
    """
    columns = rows.shape[1]
    means = rows.mean(1, keepdim=True)
    centered = rows - means
    means += centered.mean(1, keepdim=True)  # the roundoff of the first mean
    reflector = toward_ones(columns).to(rows.device)
    centered.addr_(centered @ reflector, reflector, alpha=-2.0)
    centered[:, :1] = -(columns**0.5) * means
    return centered


def toward_ones(columns: int) -> Tensor:
    """Return u of the reflection I − 2uuᵀ that takes all-ones to the first axis, (M,): to −√M e₁."""
    reflector = torch.full((columns,), columns**-0.5, dtype=torch.float64)
    reflector[0] += 1.0
    return reflector / torch.linalg.vector_norm(reflector)
