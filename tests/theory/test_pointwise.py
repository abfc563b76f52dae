"""Theorems 3, 5, 6 and lemma 4 in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmax_bottleneck.theory import (
    exact_rank,
    full_rank_witness,
    increasing_bijection,
    power_rank_bound,
    power_rank_example,
    squared_ranks,
)
from softmax_bottleneck.theory.pointwise import applied


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4))
def test_theorem_5_no_power_exceeds_the_bound(seed: int, N: int, M: int, d: int, p: int) -> None:
    generator = np.random.default_rng(seed)
    A = (generator.integers(-9, 10, (N, d)) @ generator.integers(-9, 10, (d, M))).tolist()
    rank = exact_rank(A)
    if rank:
        assert exact_rank(applied(A, lambda x: x**p)) <= power_rank_bound(N, M, rank, p)


@pytest.mark.parametrize(
    ("N", "M", "d", "p"),
    [
        (6, 6, 3, 2), (4, 9, 2, 3), (12, 11, 3, 3), (5, 7, 2, 9), (3, 3, 3, 1), (8, 5, 1, 6),
        (21, 21, 6, 2), (6, 9, 4, 3),
    ],
)  # fmt: skip
def test_theorem_5_is_attained(N: int, M: int, d: int, p: int) -> None:
    A = power_rank_example(N, M, d, p)
    assert (len(A), len(A[0])) == (N, M)
    assert exact_rank(A) == d
    assert exact_rank(applied(A, lambda x: x**p)) == power_rank_bound(N, M, d, p)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 2), st.integers(2, 12))
def test_lemma_4_finds_what_brute_force_finds(seed: int, M: int, more: int, values: int) -> None:
    A = np.random.default_rng(seed).integers(0, values, (M, M + more))
    once = [[int((x == A).sum()) == 1 for x in row] for row in A]
    exists = any(all(once[i][j] for i, j in enumerate(columns)) for columns in permutations(range(M + more), M))
    witness = full_rank_witness(A)
    assert (witness is not None) == exists
    if witness is not None:
        assert len(set(witness.columns)) == M
        B = applied(A.tolist(), witness.function)
        assert exact_rank(B) == M
        assert [[row[j] for j in witness.columns] for row in B] == np.eye(M, dtype=int).tolist()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.sampled_from(["square", "one", "hash", "identity"])
)
def test_theorem_3(seed: int, N: int, M: int, name: str) -> None:
    generator = np.random.default_rng(seed)
    A = (generator.integers(-3, 4, (N, 2)) @ generator.integers(-3, 4, (2, M))).tolist()
    f = {
        "square": lambda x: x**2,
        "one": lambda x: int(x == A[0][0]),
        "hash": lambda x: int(x * 7919 + seed) % 13,
        "identity": lambda x: x,
    }[name]
    g = increasing_bijection(A, f, seed=seed)
    B = applied(A, g)
    assert g.rank == exact_rank(B) >= exact_rank(applied(A, f))
    assert g.rank >= exact_rank(A)
    # Strictly increasing through all its knots, and onto: the identity outside.
    points = sorted({*g.knots, *(k + Fraction(1, 7) for k in g.knots), *(k - Fraction(1, 9) for k in g.knots)})
    images = [g(x) for x in points]
    assert images == sorted(set(images))
    for x in (min(g.knots) - 5, max(g.knots) + 5, min(g.knots), max(g.knots)):
        assert g(x) == x


def test_theorem_6_holds_but_at_two() -> None:
    for N in (3, 4, 5):
        assert squared_ranks(N, 40, seed=N, entries=100)[N] >= 39
    assert squared_ranks(2, 50, entries=100) == {1: 50}
