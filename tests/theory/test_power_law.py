"""Exponents of known laws, and intervals that hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from softmax_bottleneck.theory import power_law


def test_an_exact_law() -> None:
    values = 7.0 * np.arange(1, 201.0) ** -0.536
    law = power_law(np.random.default_rng(0).permutation(values), first=5, last=150)
    assert law.exponent == pytest.approx(0.536, abs=1e-12)
    assert law.scale == pytest.approx(7.0)
    assert law.r_squared == pytest.approx(1)
    assert law.low <= law.exponent <= law.high
    assert law.high - law.low < 1e-7


def test_equal_values_are_a_law_of_exponent_zero() -> None:
    law = power_law(np.full(9, 3.0))
    assert (law.exponent, law.standard_error, law.low, law.high, law.r_squared) == (0, 0, 0, 0, 1)
    assert law.scale == pytest.approx(3)


def test_the_interval_covers_independent_noise() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        # Noise that leaves the order as it is.
        values = np.exp(-0.5 * np.log(np.arange(1, 41.0)) * 4 + 0.01 * generator.standard_normal(40))
        law = power_law(values, first=1, last=40)
        covered += law.low <= 2.0 <= law.high
    assert 0.91 < covered / 400 < 0.985
