"""Ranks that need no tolerance, against their definitions written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck.spectrum import effective_rank, entropy_rank, stable_rank

SPECTRA = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30)


@given(SPECTRA, st.sampled_from([1e-1, 1e-2, 1e-3]))
def test_effective_rank(values: list[float], epsilon: float) -> None:
    ordered = sorted(values, reverse=True)
    total = math.fsum(value**2 for value in ordered)
    kept = [math.fsum(value**2 for value in ordered[:k]) for k in range(len(values) + 1)]
    k = effective_rank(values, epsilon=epsilon)
    # A hair's breadth of either side: the definition's sum and the code's are rounded differently.
    assert kept[k] >= (1 - epsilon) * total * (1 - 1e-14)
    assert k == 0 or kept[k - 1] < (1 - epsilon) * total * (1 + 1e-14)


def test_effective_rank_counts_energies_far_below_roundoff_of_the_whole() -> None:
    assert effective_rank([1.0, 1e-9, 1e-10], epsilon=1e-18) == 2
    assert effective_rank([1.0, 1e-9, 1e-10], epsilon=1e-21) == 3
    assert effective_rank([0.0, 0.0], epsilon=1e-3) == 0


@given(SPECTRA)
def test_entropy_and_stable_rank(values: list[float]) -> None:
    p = [value / math.fsum(values) for value in values]
    assert entropy_rank(values) == pytest.approx(math.exp(-math.fsum(x * math.log(x) for x in p)), rel=1e-12)
    assert stable_rank(values) == pytest.approx(math.fsum(v * v for v in values) / max(values) ** 2, rel=1e-12)
    assert entropy_rank([*values, 0.0, 0.0]) == pytest.approx(entropy_rank(values), rel=1e-12)


@pytest.mark.parametrize("size", [1, 7])
def test_equal_values_have_their_number_as_rank(size: int) -> None:
    values = np.full(size, 0.3)
    assert entropy_rank(values) == pytest.approx(size)
    assert stable_rank(values) == pytest.approx(size)
    assert effective_rank(values, epsilon=1e-5) == size


def test_zero_matrices() -> None:
    assert entropy_rank([0.0, 0.0]) == stable_rank([0.0]) == stable_rank([]) == entropy_rank([]) == 0
