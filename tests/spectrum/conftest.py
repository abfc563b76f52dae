"""Matrices with known spectra, and ranks counted without floating point."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]


@pytest.fixture(scope="session")
def built() -> Callable[..., Matrix]:
    """Build orthogonal · diag · orthogonal: a T × M matrix with the prescribed singular values."""

    def build(values: ArrayLike, T: int, M: int, *, seed: int = 0) -> Matrix:
        rng = np.random.default_rng(seed)
        prescribed = np.asarray(values, dtype=np.float64)
        left = np.linalg.qr(rng.standard_normal((T, prescribed.size)))[0]
        right = np.linalg.qr(rng.standard_normal((M, prescribed.size)))[0]
        return (left * prescribed) @ right.T

    return build


@pytest.fixture(scope="session")
def exact_rank() -> Callable[[NDArray[np.int64]], int]:
    """Count the pivots of an integer matrix by elimination over the rationals."""

    def count(matrix: NDArray[np.int64]) -> int:
        rows = [[Fraction(int(entry)) for entry in row] for row in matrix]
        rank = 0
        for column in range(matrix.shape[1]):
            pivot = next((row for row in range(rank, len(rows)) if rows[row][column]), None)
            if pivot is None:
                continue
            rows[rank], rows[pivot] = rows[pivot], rows[rank]
            for row in range(rank + 1, len(rows)):
                if factor := rows[row][column] / rows[rank][column]:
                    rows[row] = [a - factor * b for a, b in zip(rows[row], rows[rank], strict=True)]
            rank += 1
        return rank

    return count
