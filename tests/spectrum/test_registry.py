"""What the methods of the registry cost; a method of another package is in tests/house/test_extending.py."""

from __future__ import annotations

import numpy as np
import pytest

from softmax_bottleneck.spectrum import REGISTRY, Dense, Factored, Options, choose

from .methods import EPS


def test_thin_factors_come_first_and_are_the_models_own_memory() -> None:
    choice = choose("auto", shape=(1_000, 500), eps=EPS, factor_columns=7, max_memory=1)
    assert (choice.method, choice.why) == (Factored, "the head's factors have 7 columns")
    assert choice.start(np.ones((500, 7))).columns == 7
    assert choose("dense", shape=(1_000, 500), eps=EPS, factor_columns=7).method is Dense


@pytest.mark.parametrize("name", REGISTRY)
def test_more_rows_and_columns_never_cost_less(name: str) -> None:
    method, options = REGISTRY[name], Options(width=50, factor_columns=20)
    small, large = (300, 200), (3_000, 2_000)
    for shape, larger in ((small, large), (small[::-1], large[::-1])):
        for less, more in zip(method.cost(shape, options), method.cost(larger, options), strict=True):
            assert 0 < less <= more
    assert method.name == name
    assert method.passes >= 1
    assert 0 < method.resolution < 1e-6
