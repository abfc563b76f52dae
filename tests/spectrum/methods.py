"""Every method by a name, on both arithmetics, and how close to the truth it comes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from softmax_bottleneck.spectrum import (
    TSQR,
    Accelerator,
    Dense,
    Factored,
    Gram,
    Host,
    Spectrum,
    SpectrumMethod,
    WideGram,
    decompose,
)

Matrix = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
METHODS: dict[str, Callable[[int], SpectrumMethod]] = {}
for kind, arithmetic in {"": Host(), ", accelerator": Accelerator(torch.device("cpu"))}.items():
    METHODS |= {
        f"dense{kind}": partial(Dense, arithmetic=arithmetic),
        f"gram{kind}": partial(Gram, arithmetic=arithmetic),
        f"gram, wide{kind}": partial(WideGram, arithmetic=arithmetic),
        f"tsqr{kind}": partial(TSQR, arithmetic=arithmetic),
        # A = A Iᵀ: the trivial factors of any matrix.
        f"factored{kind}": lambda columns, arithmetic=arithmetic: Factored(np.eye(columns), arithmetic=arithmetic),
    }
TO_ROUNDOFF_OF_SIGMA = [method for method in METHODS if not method.startswith("gram")]


def built(values: ArrayLike, T: int, M: int) -> Matrix:
    """Return orthogonal · diag · orthogonal: a T × M matrix with the prescribed singular values."""
    rng = np.random.default_rng(0)
    prescribed = np.asarray(values, dtype=np.float64)
    left, right = (np.linalg.qr(rng.standard_normal((size, prescribed.size)))[0] for size in (T, M))
    return (left * prescribed) @ right.T


def spectrum_of(method: str, matrix: NDArray[np.floating], rows: int | None = None) -> Spectrum:
    """Feed a matrix in blocks of ``rows``."""
    computation = METHODS[method](matrix.shape[1])
    computation.block = (rows or len(matrix), computation.block[1])
    return decompose([matrix], computation)


def centred(matrix: NDArray[np.floating]) -> Matrix:
    wide = matrix.astype(np.float64)
    return wide - wide.mean(1, keepdims=True)


def assert_close(method: str, found: Matrix, expected: Matrix, *, size: int, sigma_1: float | None = None) -> None:
    """Compare within roundoff: of σ for LAPACK on A, of σ² for LAPACK on AᵀA."""
    scale = expected[0] if sigma_1 is None else sigma_1
    if method.startswith("gram"):
        np.testing.assert_allclose(found**2, expected**2, rtol=0, atol=8 * size * EPS * scale**2)
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=8 * math.sqrt(size) * EPS * scale)
