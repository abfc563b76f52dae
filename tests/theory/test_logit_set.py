"""The set F(A) against exact rational arithmetic, brute force over shifts, and softmax itself."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.theory import exact_rank, expressible, is_member, minimal_rank, row_shift


def _logits(T: int, M: int, d: int, seed: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    return generator.integers(-3, 4, (T, d)).astype(float) @ generator.integers(-3, 4, (d, M))


def test_property_1_members_have_the_same_softmax() -> None:
    A = log_softmax(_logits(6, 9, 4, 0), axis=1)
    shifted = row_shift(A, np.linspace(-50, 50, 6))
    np.testing.assert_allclose(softmax(shifted, axis=1), np.exp(A), rtol=1e-12)
    assert is_member(shifted, A)
    assert is_member(A, shifted)
    shifted[3, 2] += 1e-9
    assert not is_member(shifted, A)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 6), st.integers(1, 4))
@example(42873, 4, 2, 2)  # the second singular value is computed as 1.4 ε σ₁
def test_minimal_rank_is_the_least_over_shifts(seed: int, T: int, M: int, d: int) -> None:
    """In exact arithmetic: no whole shift goes below it, row means reach it, and ranks differ by one at most."""
    A = _logits(T, M, d, seed)
    found = minimal_rank(A)
    whole = [[Fraction(int(x)) for x in row] for row in A]
    centered = [[x - sum(row) / M for x in row] for row in whole]
    assert found.rank == exact_rank(centered)
    assert found.raw_rank == exact_rank(whole)
    generator = np.random.default_rng(seed)
    for _ in range(10):
        shifts = generator.integers(-5, 6, T)
        rank = exact_rank([[x + int(s) for x in row] for row, s in zip(whole, shifts, strict=True)])
        assert found.rank <= rank <= found.rank + 1
    shifted = row_shift(A, found.shifts)
    assert is_member(shifted, A)
    assert np.linalg.matrix_rank(shifted, tol=1e-9) == found.rank


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_roundoff_is_that_of_the_type(dtype: torch.dtype) -> None:
    """Numbers rounded to a type have no more directions than before; as float64 they have all."""
    logits = torch.from_numpy(_logits(50, 30, 4, 0)).to(dtype)
    A = torch.log_softmax(logits, 1)
    assert (minimal_rank(A).rank, minimal_rank(A).raw_rank) == (4, 5)
    assert is_member(logits, A)
    assert is_member(logits, A.double(), eps=str(dtype).removeprefix("torch."))
    assert [expressible(A, d).expressible for d in (3, 4)] == [False, True]
    if dtype != torch.float64:
        assert minimal_rank(A.double()).rank == 29
        assert not is_member(logits.double(), A.double())


@pytest.mark.parametrize("exponent", [-900, -500, 500, 1000])
def test_the_size_of_the_numbers_changes_nothing(exponent: int) -> None:
    A = _logits(8, 9, 4, 0)
    plain, large = minimal_rank(A), minimal_rank(np.ldexp(A, exponent))
    assert (large.rank, large.raw_rank) == (plain.rank, plain.raw_rank)
    assert (np.ldexp(large.shifts, -exponent) == plain.shifts).all()
    assert np.ldexp(large.tolerance, -exponent) == plain.tolerance
    verdict = expressible(np.ldexp(A, exponent), 2)
    H, W = np.ldexp(np.ones((8, 2)), exponent), np.eye(9, 2)
    assert verdict.wrong_context(H, W) == expressible(A, 2).wrong_context(np.ones((8, 2)), W)
    assert is_member(np.ldexp(A + 1, exponent), np.ldexp(A, exponent))


def test_the_all_ones_direction_makes_the_difference() -> None:
    """Both cases of property 2: a raw rank equal to the least one, and one above it."""
    generator = np.random.default_rng(0)
    W = generator.standard_normal((8, 3))
    logits = generator.standard_normal((20, 3)) @ (W - W.mean(0)).T
    assert (minimal_rank(logits).rank, minimal_rank(logits).raw_rank) == (3, 3)
    normalized = log_softmax(logits, axis=1)
    assert (minimal_rank(normalized).rank, minimal_rank(normalized).raw_rank) == (3, 4)


@pytest.mark.parametrize("d", [3, 4, 9, 12])
def test_enough_dimensions_reproduce_the_probabilities(d: int) -> None:
    A = log_softmax(np.random.default_rng(1).standard_normal((15, 3)) @ np.random.default_rng(2).normal(size=(3, 9)), 1)
    verdict = expressible(A, d)
    assert verdict.expressible
    assert verdict.least_dimension == 3
    assert verdict.H.shape == (15, d)
    assert verdict.W.shape == (9, d)
    np.testing.assert_allclose(softmax(verdict.H @ verdict.W.T, axis=1), np.exp(A), rtol=1e-12)
    with pytest.raises(MatrixError, match="expresses P, so every context can be right"):
        verdict.wrong_context(verdict.H, verdict.W)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_too_few_dimensions_are_wrong_somewhere(d: int) -> None:
    """Corollary 1, for the best parameters and for random ones: the context named is wrong by what is promised."""
    generator = np.random.default_rng(d)
    A = np.log(generator.dirichlet(np.ones(7), 12))
    verdict = expressible(A, d)
    assert not verdict.expressible
    assert verdict.least_dimension == 6
    assert len(set(verdict.contexts)) == d + 1
    U, values, V = np.linalg.svd(A - A.mean(1, keepdims=True))
    rows = list(verdict.contexts)
    best = np.linalg.svd((A - A.mean(1, keepdims=True))[rows])
    fitted = np.zeros((12, d))
    fitted[rows] = best[0][:, :d] * best[1][:d]
    parameters = [
        (U[:, :d] * values[:d], V[:d].T),
        (fitted, best[2][:d].T),
        (generator.standard_normal((12, d)), generator.standard_normal((7, d))),
    ]
    for H, W in parameters:
        wrong = verdict.wrong_context(H, W)
        assert wrong in verdict.contexts
        difference = A[wrong] - log_softmax(H[wrong] @ W.T)
        assert np.linalg.norm(difference - difference.mean()) >= verdict.least_error / np.sqrt(d + 1) * (1 - 1e-9)
        assert abs(difference).max() > 1e-6
    with pytest.raises(MatrixError, match="the verdict is on H and W"):
        verdict.wrong_context(np.zeros((4, 3)), np.zeros((4, 3)))
    # The promise is exact for the parameters that are best for these contexts.
    error = (A - A.mean(1, keepdims=True))[rows] - fitted[rows] @ best[2][:d]
    assert np.linalg.norm(error) == pytest.approx(verdict.least_error, rel=1e-9)
    # Without any one of them the others can be right together.
    for left_out in range(d + 1):
        assert expressible(np.delete(A[rows], left_out, 0), d).expressible


def test_a_uniform_distribution_needs_nothing() -> None:
    verdict = expressible(np.full((4, 5), -np.log(5)), 1)
    assert verdict.expressible
    assert verdict.least_dimension == 0
    assert not verdict.H.any()


def test_exact_rank() -> None:
    assert exact_rank([[0.1, 0.3], [1, 3]]) == 2  # 0.3 is not three times 0.1 in binary
    assert exact_rank([[0, 0], [0, 0]]) == 0
    assert exact_rank(np.arange(12).reshape(3, 4)) == 2
    assert exact_rank(np.float32([[0.1, 0.2], [1, 2]])) == exact_rank(torch.tensor([[0.1, 0.2], [1, 2]])) == 1
