"""Theorem 2 against SciPy's constrained maximum entropy, and optima at infinity against known faces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, minimize
from scipy.spatial import ConvexHull
from scipy.special import entr, log_softmax

from softmax_bottleneck.theory import best_context_vector


def _cross_entropy(p: NDArray[np.float64], logits: NDArray[np.float64]) -> float:
    return float(-(p * log_softmax(logits)).sum())


def _maximum_entropy(p: NDArray[np.float64], W: NDArray[np.float64]) -> float:
    """Return the largest entropy of all distributions with the same mean embedding, by an interior-point method."""
    constraints = LinearConstraint(np.vstack([W.T, np.ones(len(W))]), *[np.append(p @ W, 1.0)] * 2)
    found = minimize(
        lambda r: -float(entr(r).sum()),
        p,
        jac=lambda r: np.log(np.maximum(r, 1e-12)) + 1,
        hess=lambda r: np.diag(1 / np.maximum(r, 1e-12)),
        bounds=[(1e-9, 1)] * len(p),
        constraints=constraints,
        method="trust-constr",
        options={"gtol": 1e-10, "xtol": 1e-13, "maxiter": 3000},
    )
    return float(-found.fun)


def test_the_minimum_is_the_maximum_entropy() -> None:
    generator = np.random.default_rng(0)
    W, P = generator.standard_normal((8, 2)), generator.dirichlet(np.ones(8), 3)
    best = best_context_vector(P, W, tolerance=1e-14)
    assert best.attained == (True, True, True)
    assert best.gap.max() <= 1e-14
    for row in range(3):
        assert best.value[row] == pytest.approx(_cross_entropy(P[row], W @ best.h[row]), abs=1e-12)
        assert best.value[row] == pytest.approx(_maximum_entropy(P[row], W), abs=1e-6)
        q = np.exp(log_softmax(W @ best.h[row]))
        np.testing.assert_allclose(q @ W, P[row] @ W, atol=1e-5)
        assert best.value[row] == pytest.approx(entr(q).sum(), abs=1e-6)


def test_corollary_2_1_more_dimensions_never_cost() -> None:
    generator = np.random.default_rng(1)
    W, P = generator.standard_normal((10, 10)), generator.dirichlet(0.3 * np.ones(10), 5)
    values = np.array([best_context_vector(P, W[:, :d]).value for d in range(1, 11)])
    assert (np.diff(values, axis=0) <= 1e-9).all()
    assert (values[:-2] - values[1:-1] > 1e-6).any(axis=1).all()


def test_corollary_2_2_full_rank_reaches_the_entropy() -> None:
    generator = np.random.default_rng(2)
    P = generator.dirichlet(np.ones(6), 4)
    for d in (5, 6, 9):  # d = M − 1 is already enough
        best = best_context_vector(P, generator.standard_normal((6, d)))
        np.testing.assert_allclose(best.value, entr(P).sum(1), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_on_an_edge_of_a_polygon(seed: int) -> None:
    """P on two neighbouring corners of the hull: Q goes to P itself, and no finite vector is as good."""
    generator = np.random.default_rng(seed)
    W = generator.standard_normal((12, 2))
    one, other = ConvexHull(W).simplices[0]
    p = np.zeros(12)
    p[[one, other]] = 0.3, 0.7
    best = best_context_vector(p, W)
    assert best.attained == (False,)
    assert best.value[0] == pytest.approx(entr([0.3, 0.7]).sum(), abs=1e-9)
    g = best.recession[0]
    lowered = (W[one] - W) @ g
    np.testing.assert_allclose(lowered[[one, other]], 0, atol=1e-9)
    assert np.delete(lowered, [one, other]).min() == pytest.approx(1)
    falling = [_cross_entropy(p, W @ (best.h[0] + s * g)) for s in (0, 1, 5, 10, 40)]
    assert (np.diff(falling) < 0).all()
    assert falling[-1] == pytest.approx(best.value[0], abs=1e-9)


@pytest.mark.parametrize(
    ("W", "p", "tokens", "attained"),
    [
        # On a face with more tokens than P has, the infimum is over all of them. With the mean embedding (1, 0) nothing
        # may lie below the first three: R = (a, 1 − 2a, a), best at a = 1/3.
        ([[0, 0], [1, 0], [2, 0], [1, -1], [0.5, -2]], [0.5, 0, 0.5, 0, 0], 3, False),
        ([[1, 1], [1, -1], [-1, -1], [-1, 1]], [0.5, 0, 0.5, 0], 4, True),  # the centre of a square
        (np.zeros((4, 3)), [0.5, 0.5, 0, 0], 4, True),
        (np.ones((4, 1)), [0.5, 0.5, 0, 0], 4, True),
        ([[0], [0], [1], [1]], [0.5, 0.5, 0, 0], 2, False),
    ],
)
def test_the_best_is_uniform_over_tokens_of_symmetric_embeddings(W: Any, p: Any, tokens: int, attained: bool) -> None:
    W, p = np.array(W, float), np.array(p)
    best = best_context_vector(p, W)
    assert best.attained == (attained,)
    assert best.recession.any() != attained
    assert best.value[0] == pytest.approx(np.log(tokens), abs=1e-9)
    assert best.gap[0] <= 1e-10
    assert _cross_entropy(p, W @ (best.h[0] + 40 * best.recession[0])) == pytest.approx(np.log(tokens), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 5))
def test_infinity_is_where_the_hull_says(seed: int, d: int, support: int) -> None:
    """Attained exactly where no direction has P's tokens all at the top and another below: many directions tried."""
    generator = np.random.default_rng(seed)
    W = generator.integers(-2, 3, (7, d)).astype(float)
    p = np.zeros(7)
    p[:support] = 1 / support
    best = best_context_vector(p, W)
    offsets = np.stack(np.meshgrid(*[np.arange(-4, 5)] * d), -1).reshape(-1, d)
    scores = offsets @ W.T
    on_top = (scores[:, :support] == scores.max(1, keepdims=True)).all(1) & (np.ptp(scores, axis=1) > 0)
    # Normals of faces of points in {−2 … 2}^d need larger numbers at d = 3: what is found is always right.
    if on_top.any():
        assert best.attained == (False,)
    if best.attained == (False,):
        lowered = (W[0] - W) @ best.recession[0]
        np.testing.assert_allclose(lowered[:support], 0, atol=1e-8)
        assert lowered.min() > -1e-8
        assert lowered.max() >= 1 - 1e-8
    elif d <= 2:
        assert not on_top.any()
    far = _cross_entropy(p, W @ (best.h[0] + 50 * best.recession[0]))
    assert far == pytest.approx(best.value[0], abs=1e-7)


def test_a_bias_and_batches_of_every_kind() -> None:
    generator = np.random.default_rng(5)
    W, b = generator.standard_normal((9, 2)), generator.standard_normal(9)
    corner = int(W[:, 0].argmax())
    P = np.vstack([generator.dirichlet(np.ones(9), 2), np.eye(9)[corner]])
    best = best_context_vector(torch.from_numpy(P), torch.from_numpy(W), bias=torch.from_numpy(b))
    assert best.attained == (True, True, False)
    for row in range(3):
        alone = best_context_vector(P[row], W, bias=b)
        assert alone.value[0] == pytest.approx(best.value[row], abs=1e-9)
        assert _cross_entropy(P[row], W @ (best.h[row] + 60 * best.recession[row]) + b) == pytest.approx(
            best.value[row], abs=1e-8
        )
