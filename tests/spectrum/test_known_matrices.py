"""Every method on matrices whose spectra are known on paper, or known to be hard."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from softmax_bottleneck.spectrum import numerical_rank

from .methods import METHODS, TO_ROUNDOFF_OF_SIGMA, Matrix, assert_close, centred, spectrum_of


def hartley(n: int) -> tuple[Matrix, Matrix]:
    """The real discrete Fourier transform cos + sin: orthogonal up to √n."""
    angle = 2 * math.pi * np.outer(np.arange(n), np.arange(n)) / n
    return np.cos(angle) + np.sin(angle), np.full(n, math.sqrt(n))


def second_difference(n: int) -> tuple[Matrix, Matrix]:
    matrix = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    return matrix, 4 * np.sin(np.arange(1, n + 1) * math.pi / (2 * (n + 1))) ** 2


def minij(n: int) -> tuple[Matrix, Matrix]:
    index = np.arange(1.0, n + 1)
    return np.minimum.outer(index, index), 0.25 / np.sin((2 * index - 1) * math.pi / (4 * n + 2)) ** 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", [hartley, second_difference, minij])
def test_analytic_spectra(method: str, family: Callable[[int], tuple[Matrix, Matrix]]) -> None:
    matrix, expected = family(32)
    expected = np.sort(expected)[::-1]
    found = spectrum_of(method, matrix, 9)
    assert_close(method, found.values, expected, size=len(matrix))
    assert_close(method, found.centered, np.linalg.svd(centred(matrix), compute_uv=False), size=len(matrix))


def hilbert(n: int) -> Matrix:
    return 1 / (np.add.outer(np.arange(n), np.arange(n)) + 1.0)


def gaussian_kernel(n: int) -> Matrix:
    x = np.linspace(0, 3, n)
    return np.exp(-(np.subtract.outer(x, x) ** 2))


def kahan(n: int) -> Matrix:
    s = math.sin(1.2)
    matrix: Matrix = np.diag(s ** np.arange(n)) @ (np.eye(n) - math.cos(1.2) * np.triu(np.ones((n, n)), 1))
    return matrix


@pytest.mark.parametrize("family", [hilbert, gaussian_kernel])
@pytest.mark.parametrize("method", METHODS)
def test_gapless_matrices_are_indeterminate(method: str, family: Callable[[int], Matrix]) -> None:
    found = spectrum_of(method, family(40), 11)
    estimate = numerical_rank(found.values, shape=(40, 40), eps="float32")
    assert not estimate.determinate
    assert estimate.low < estimate.high < 40


@pytest.mark.parametrize("method", TO_ROUNDOFF_OF_SIGMA)
def test_kahans_matrix(method: str) -> None:
    """Its last σ lies far below the last pivot of a pivoted QR; det is the product of the diagonal."""
    matrix = kahan(60)
    found = spectrum_of(method, matrix, 13)
    log_determinant = np.log(np.diag(matrix)).sum()
    assert np.log(found.values).sum() == pytest.approx(log_determinant, rel=1e-6)
    assert found.values[-1] < 1e-2 * np.diag(matrix)[-1]
