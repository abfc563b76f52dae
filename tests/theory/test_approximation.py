"""Theorem 1 of Ganea et al. 2019 against fits by an optimizer that may choose any H and W."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from softmax_bottleneck.theory import frobenius_lower_bound, recommended_embedding_size


@pytest.mark.parametrize("d", [1, 2, 3])
def test_no_fit_goes_below(d: int) -> None:
    generator = np.random.default_rng(d)
    A = np.log(generator.dirichlet(np.ones(6), 8))
    centered = A - A.mean(1, keepdims=True)

    def error(parameters: np.ndarray) -> float:
        H, W = parameters[: 8 * d].reshape(8, d), parameters[8 * d :].reshape(6, d)
        return float(((A - log_softmax(H @ W.T, axis=1)) ** 2).sum())

    raw = frobenius_lower_bound(np.linalg.svd(A, compute_uv=False), d)
    by_centered = frobenius_lower_bound(np.linalg.svd(centered, compute_uv=False), d, centered=True)
    U, values, V = np.linalg.svd(centered, full_matrices=False)
    start = np.concatenate([(U[:, :d] * values[:d]).ravel(), V[:d].T.ravel()])
    fitted = min(minimize(error, start + s * generator.standard_normal(len(start))).fun for s in (0, 0.5))
    assert raw <= by_centered <= np.sqrt(fitted) <= np.sqrt(error(start))


def test_the_raw_bound_is_reached() -> None:
    """By the truncated decomposition, of rank d + 1, which no bound on all matrices of that rank can exclude."""
    A = np.log(np.random.default_rng(0).dirichlet(np.ones(7), 30))
    U, values, V = np.linalg.svd(A, full_matrices=False)
    for d in range(1, 7):
        B = (U[:, : d + 1] * values[: d + 1]) @ V[: d + 1]
        assert np.linalg.norm(A - B) == pytest.approx(frobenius_lower_bound(values, d), rel=1e-9, abs=1e-10)


def test_embedding_sizes() -> None:
    values = [5.0, 4.0, 3.0, 2.0, 1.0]
    for centered in (False, True):
        for error in (0.0, 0.5, 1.0, 3.0, 100.0):
            d = recommended_embedding_size(values, error, centered=centered)
            assert frobenius_lower_bound(values, d, centered=centered) <= error
            assert d == 1 or frobenius_lower_bound(values, d - 1, centered=centered) > error
    assert recommended_embedding_size(values, 0.0) == 4
    assert recommended_embedding_size(values, 0.0, centered=True) == 5


def test_the_squares_of_large_singular_values_do_not_overflow() -> None:
    assert frobenius_lower_bound([3e200, 4e200, 4e200, 9e200], 1) == pytest.approx(5e200)
