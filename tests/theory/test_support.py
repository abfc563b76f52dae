"""Proved supports against every vertex of the polytope, and each proof by itself."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from softmax_bottleneck.theory import best_context_vector, provably_supported


def least_by_vertices(p: NDArray[np.float64], W: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smallest R_i over all vertices: basic solutions of d + 1 equations, found by trying all supports."""
    equations = np.vstack([W.T, np.ones(len(W))])
    target = equations @ p
    least = p.copy()
    for size in range(1, len(equations) + 1):
        for chosen in map(list, combinations(range(len(W)), size)):
            part = equations[:, chosen]
            if np.linalg.matrix_rank(part) < size:
                continue
            R = np.linalg.lstsq(part, target)[0]
            if (R >= -1e-10).all() and np.allclose(part @ R, target, rtol=0, atol=1e-10):
                full = np.zeros(len(W))
                full[chosen] = R
                least = np.minimum(least, full)
    return least


def check(p: NDArray[np.float64], W: NDArray[np.float64]) -> None:
    found = provably_supported(p, W)
    least = least_by_vertices(p, W)
    assert not found.unknown.size
    assert found.tokens.tolist() == np.flatnonzero(least > 1e-9).tolist()
    np.testing.assert_allclose(found.least, least[found.tokens], atol=1e-8)
    for token, bound, h, offset in zip(found.tokens, found.least, found.h, found.offset, strict=True):
        heights = W @ h + offset
        heights[token] -= 1
        assert heights.max() <= 0
        assert p @ W @ h + offset >= bound > 0
    assert len(found.tokens) <= W.shape[1] + 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 8), st.sampled_from([0.1, 1.0]))
def test_against_all_vertices(seed: int, d: int, vocab: int, alpha: float) -> None:
    generator = np.random.default_rng(seed)
    check(
        generator.multinomial(1000, generator.dirichlet(alpha * np.ones(vocab))) / 1000,
        generator.standard_normal((vocab, d)),
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 2), st.integers(3, 8))
def test_duplicate_and_zero_rows(seed: int, d: int, vocab: int) -> None:
    generator = np.random.default_rng(seed)
    W = generator.integers(-1, 2, (vocab, d)).astype(float)
    counts = generator.integers(0, 3, vocab) + np.eye(vocab)[0]
    check(counts / counts.sum(), W)


def test_it_holds_at_a_minimum_of_the_cross_entropy() -> None:
    """From the optimal Q alone, tokens of the true P are proved, and none that P lacks."""
    generator = np.random.default_rng(0)
    W = generator.standard_normal((12, 6))
    proved = 0
    for _ in range(20):
        p = generator.dirichlet(0.2 * np.ones(12))
        p[p < 0.02] = 0
        p /= p.sum()
        best = best_context_vector(p, W, tolerance=1e-15)
        if best.attained != (True,):
            continue
        q = np.exp(W @ best.h[0])
        q /= q.sum()
        np.testing.assert_allclose(W.T @ q, W.T @ p, atol=1e-6)
        tokens = provably_supported(torch.from_numpy(q), torch.from_numpy(W)).tokens
        assert (p[tokens] > 0).all()
        proved += len(tokens)
    assert proved > 0
