"""From singular values to ranks, by formula: those with a tolerance, and those without."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.spectrum import (
    counts_by_rule,
    effective_rank,
    entropy_rank,
    numerical_rank,
    stable_rank,
    tolerance,
)

FLOAT32 = float(np.finfo(np.float32).eps)


def test_a_value_at_the_tolerance_is_not_counted() -> None:
    assert tolerance(7.0, (30, 5), 1e-3) == pytest.approx(0.5 * 6.0 * 7.0 * 1e-3, rel=1e-15)
    rank = numerical_rank([1.0, 0.5, 1e-12], shape=(30, 5), eps="float32", rule="press")
    assert repr(rank) == "RankEstimate(2, low=2, high=2, determinate=True)"
    limit = tolerance(1.0, (3, 3), 2.0**-10)
    assert int(numerical_rank([1.0, limit], shape=(3, 3), eps=2.0**-10)) == 1
    assert int(numerical_rank([1.0, np.nextafter(limit, 1)], shape=(3, 3), eps=2.0**-10)) == 2


@pytest.mark.parametrize(
    ("tail", "counts"),
    [
        ([15, 3, 1.5, 0.01], (3, 2, 4)),  # values below a tenth of the tolerance count as that
        ([15, 0.3, 0.25, 0.01], (2, 2, 2)),
        ([15, 8, 0.9, 0.5], (3, 2, 3)),
        ([50, 25, 0.1, 0.01], (3, 3, 3)),  # low == high: no other candidate
    ],
)
def test_other_rules_count_beside_press(tail: list[float], counts: tuple[int, int, int]) -> None:
    """Press's tolerance at (7, 8) and ε = 0.01 is 2, NumPy's 8; the gap is between the ranks at 20 and at 0.2."""
    values = np.array([100, *tail, 0.001])
    rank = numerical_rank(values, shape=(7, 8), eps=0.01)
    assert tuple(counts_by_rule(values, (7, 8), 0.01, rank).values()) == counts


@given(
    values=st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=12),
    T=st.integers(12, 10_000),
    eps=st.sampled_from(["float64", "float32", "float16", "bfloat16"]),
)
def test_properties(values: list[float], T: int, eps: str) -> None:
    found = numerical_rank(values, shape=(T, 12), eps=eps)
    assert 0 <= found.low <= found.value <= found.high <= 12
    assert found.determinate == (found.low == found.high)
    assert found == numerical_rank(values[::-1], shape=(T, 12), eps=eps)
    ordered = sorted(values + [0.0] * (12 - len(values)), reverse=True)
    assert found.sigma_r == (ordered[found.value - 1] if found.value else None)
    assert found.sigma_next == (ordered[found.value] if found.value < 12 else None)
    assert found.value == sum(value > found.tolerance for value in values)


def test_of_what_a_sketch_did_not_see_nothing_is_said() -> None:
    seen = numerical_rank([3.0, 2.0, 1.0], shape=(60, 40), eps="float64", residual=5.0)
    assert (seen.value, seen.at_least, seen.sigma_next, seen.gap) == (3, True, None, None)
    assert numerical_rank([3.0, 2.0, 1.0], shape=(60, 40), eps="float64").sigma_next == 0.0


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        # Press's tolerance at (7, 8) and ε = 0.01 is ½ · 4 · 100 · 0.01 = 2: counted between 0.2 and 20.
        ([0.1, 100, 30, 5, 1], {"shape": (7, 8), "eps": 0.01}, (3, 2, 4, False, 5, 1, 5.0)),
        ([2, 1], {"shape": (5, 4)}, (2, 2, 2, True, 1, 0.0, None)),  # missing values are zeros
        ([3, 2], {"shape": (2, 9)}, (2, 2, 2, True, 2.0, None, None)),
        ([0, 0], {"shape": (2, 9)}, (0, 0, 0, True, None, 0.0, None)),
        ([], {"shape": (2, 9)}, (0, 0, 0, True, None, 0.0, None)),
        ([1e10, 5e-324], {"shape": (2, 2), "eps": "float64"}, (1, 1, 1, True, 1e10, 5e-324, None)),
        ([1.0, 0.5], {"shape": (82_429, 10_000), "eps": "bfloat16"}, (0, 0, 10_000, False)),
        ([0.0], {"shape": (82_429, 10_000), "eps": "bfloat16"}, (0, 0, 0, True)),
        ([1e-9], {"shape": (5, 3), "floor": 1.0}, (0, 0, 0, True)),  # constant rows, as far as one can know
    ],
)
def test_an_estimate_in_full(values: list[float], options: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = numerical_rank(values, **{"eps": "float32", **options})
    fields = ("value", "low", "high", "determinate", "sigma_r", "sigma_next", "gap")
    for name, true in zip(fields, expected, strict=False):
        assert getattr(found, name) == true, name
    assert int(found) == expected[0]
    assert found.sigma_1 == max(values, default=0)


@pytest.mark.parametrize(
    ("values", "options", "sentence"),
    [
        *(
            ([1.0], {"eps": eps}, "eps must be one of float64, float32, bfloat16, float16, .* or a number between")
            for eps in ("float8", 0.0, 1.0, -1e-3, math.nan, math.inf, "")
        ),
        *(([1.0], {"eps": eps}, "eps must be a text or a number, not") for eps in (None, [1e-3])),
        *(([1, bad], {}, "finite and not negative") for bad in (math.nan, math.inf, -1e-9)),
        ([3, 2, 1], {"shape": (2, 5)}, "a matrix of this shape has 2 singular values, not 3"),
        ([[1.0]], {}, "singular values must be one-dimensional"),
        *(([], {"shape": bad}, "must be (at least 1|a pair of whole numbers)") for bad in ((0, 5), (2, 0), (2, 5.5))),
    ],
)
def test_what_is_refused(values: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BottleneckError, match=sentence):
        numerical_rank(values, **{"shape": (4, 4), "eps": "float32", **options})


def test_measures_of_spectra_that_are_known() -> None:
    equal = np.full(7, 0.3)
    assert (entropy_rank(equal), stable_rank(equal)) == (pytest.approx(7), pytest.approx(7))
    assert [effective_rank(each, epsilon=1e-5) for each in (equal, [0.0, 0.0])] == [7, 0]
    far = [1.0, 1e-9, 1e-10]  # far below roundoff of the whole
    assert [effective_rank(far, epsilon=epsilon) for epsilon in (1e-18, 1e-21)] == [2, 3]
    assert entropy_rank([0.0, 0.0]) == stable_rank([0.0]) == stable_rank([]) == entropy_rank([]) == 0


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


@given(SPECTRA)
def test_entropy_and_stable_rank(values: list[float]) -> None:
    p = [value / math.fsum(values) for value in values]
    assert entropy_rank(values) == pytest.approx(math.exp(-math.fsum(x * math.log(x) for x in p)), rel=1e-12)
    assert stable_rank(values) == pytest.approx(math.fsum(v * v for v in values) / max(values) ** 2, rel=1e-12)
    assert entropy_rank([*values, 0.0, 0.0]) == pytest.approx(entropy_rank(values), rel=1e-12)
