"""Parallelograms against all quadruples, and separations against theorems of convexity and many context vectors."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.theory import multimode, parallelograms, separation, unargmaxable


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(4, 12))
def test_all_quadruples_on_a_lattice(seed: int, d: int, vocab: int) -> None:
    W = np.random.default_rng(seed).integers(-2, 3, (vocab, d)).astype(float)
    first = [i for i in range(vocab) if not any((W[i] == W[j]).all() for j in range(i))]
    expected = [
        (a, b, c, e)
        for (a, b), (c, e) in combinations(combinations(first, 2), 2)
        if len({a, b, c, e}) == 4 and (W[a] + W[b] == W[c] + W[e]).all()
    ]
    found = parallelograms(W, limit=10**6)
    assert found.complete
    assert [tuple(row) for row in found.tokens.tolist()] == sorted(expected)


def test_planted_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are sorted in parts; nothing is lost at their edges."""
    monkeypatch.setattr(multimode, "PAIRS", 5000)
    generator = np.random.default_rng(0)
    W = generator.standard_normal((600, 8))
    planted = [(5, 300, 17, 401), (100, 200, 150, 599), (0, 1, 2, 3)]
    for a, b, c, d in planted:
        W[d] = W[a] + W[b] - W[c]
    found = parallelograms(W, tolerance=1e-12)
    assert {frozenset(map(frozenset, (row[:2], row[2:]))) for row in found.tokens.tolist()} == {
        frozenset((frozenset(row[:2]), frozenset(row[2:]))) for row in planted
    }
    assert found.residuals.max() < 1e-12 * abs(W).max() * 8


def test_a_rounded_parallelogram_needs_a_tolerance() -> None:
    W = torch.randn(20, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 3
    W[3] = W[0] + W[1] - W[2]
    assert parallelograms(W.float(), tolerance=1e-6).tokens.tolist() == [[0, 1, 2, 3]]
    assert not len(parallelograms(W.float()).tokens)


@pytest.mark.parametrize("exponent", [-1000, 600, 1000])
def test_the_size_of_the_numbers_changes_nothing(exponent: int) -> None:
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.3, 0.1]])
    W = np.ldexp(square, exponent)
    assert parallelograms(W).tokens.tolist() == [[0, 3, 1, 2]]
    assert not len(parallelograms(W * [[1], [1], [1], [0.5], [1]]).tokens)
    bias = np.ldexp([0.0, 0.0, 0.0, 1.0, 0.0], exponent)
    assert separation(W, [0, 3], bias=bias).possible is separation(square, [0, 3], bias=[0, 0, 0, 1, 0]).possible
    for b in (None, bias):
        plain = unargmaxable(square, None if b is None else np.ldexp(b, -exponent))
        found = unargmaxable(W, b)
        assert not len(found.unknown)
        assert found.unargmaxable.tolist() == plain.unargmaxable.tolist()
        for token in np.flatnonzero(np.isfinite(found.margins)):
            assert (W @ found.contexts[token] + (0 if b is None else b)).argmax() == token


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_no_context_vector_takes_a_diagonal(noise: float) -> None:
    """The theorem: neither two modes, for a million context vectors; within noise, by half the residual at most."""
    generator = np.random.default_rng(1)
    W = generator.standard_normal((4, 3))
    W[3] = W[0] + W[1] - W[2] + noise * generator.standard_normal(3)
    found = parallelograms(W, tolerance=0.1)
    assert found.tokens.tolist() == [[0, 1, 2, 3]]
    assert found.residuals[0] == pytest.approx(np.linalg.norm(W[0] + W[1] - W[2] - W[3]))
    H = generator.standard_normal((1_000_000, 3))
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    logits = H @ W.T
    gap = np.maximum(logits[:, :2].min(1) - logits[:, 2:].max(1), logits[:, 2:].min(1) - logits[:, :2].max(1)).max()
    assert gap <= found.residuals[0] / 2 + 1e-12
    for diagonal in ([0, 1], [2, 3]):
        assert separation(W, diagonal).possible is (noise > 0)
    for side in ([0, 2], [0, 3], [1, 2], [1, 3]):
        assert separation(W, side).possible


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 9), st.booleans())
def test_separations_carry_their_proof(seed: int, d: int, vocab: int, biased: bool) -> None:
    generator = np.random.default_rng(seed)
    W = generator.integers(-3, 4, (vocab, d)).astype(float)
    b = generator.integers(-2, 3, vocab).astype(float) if biased else np.zeros(vocab)
    above = generator.permutation(vocab)[: int(generator.integers(1, vocab))].tolist()
    below = [token for token in range(vocab) if token not in above]
    found = separation(W, above, bias=b)
    assert found.possible is not None
    if found.possible:
        logits = W @ found.h + b
        assert logits[above].min() > logits[below].max()
    else:
        np.testing.assert_allclose(found.above @ W[above], found.below @ W[below], atol=1e-7)
        assert found.above @ b[above] <= found.below @ b[below] + 1e-7
        tried = generator.standard_normal((2000, d)) * generator.exponential(3, (2000, 1)) @ W.T + b
        assert (tried[:, above].min(1) <= tried[:, below].max(1)).all()


def test_too_many_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multimode, "CANDIDATES", 100)
    with pytest.raises(MatrixError, match="lower the tolerance"):
        parallelograms(np.random.default_rng(0).standard_normal((40, 2)), tolerance=1.0)
