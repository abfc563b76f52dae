"""Theorem 5 in exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmax_bottleneck.theory import exact_rank, power_rank_bound, power_rank_example


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4))
def test_theorem_5_no_power_exceeds_the_bound(seed: int, N: int, M: int, d: int, p: int) -> None:
    generator = np.random.default_rng(seed)
    A = (generator.integers(-9, 10, (N, d)) @ generator.integers(-9, 10, (d, M))).tolist()
    rank = exact_rank(A)
    if rank:
        assert exact_rank([[x**p for x in row] for row in A]) <= power_rank_bound(N, M, rank, p)


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
    assert exact_rank([[x**p for x in row] for row in A]) == power_rank_bound(N, M, d, p)
