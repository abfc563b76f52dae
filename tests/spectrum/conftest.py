"""Matrices with known spectra, and ranks counted without floating point."""

from __future__ import annotations

from collections.abc import Callable

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
