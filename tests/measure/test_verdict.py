"""The sentence about a rank, in every case that a report can be in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck import rank
from softmax_bottleneck.measure import verdict
from softmax_bottleneck.spectrum import RankEstimate

SURE = RankEstimate(282, 282, 282, True, 1e-3, 9.0, 0.5, 1e-9, 5e8, False)
OPEN = replace(SURE, value=9_981, low=9_713, high=9_999, determinate=False)
PTB = (82_430, 10_000)
BOUNDED: dict[str, Any] = {"shape": PTB, "bound": 282, "embedding_size": 280}
FREE: dict[str, Any] = {"shape": PTB, "bound": None, "embedding_size": 280}
DOUBTED = {"determinate": False, "doubt": "the numbers were rounded"}

CASES: dict[str, tuple[RankEstimate, dict[str, Any], str]] = {
    "the bound is reached": (
        SURE,
        BOUNDED,
        "d = 280 bounds the rank at 282 and the matrix has exactly 282: this output layer is the bottleneck",
    ),
    "d is unknown": (
        SURE,
        BOUNDED | {"embedding_size": None},
        "the rank is at most 282 and the matrix has exactly 282: this output layer is the bottleneck",
    ),
    "the bound is not reached": (
        replace(SURE, value=250, low=250, high=250),
        BOUNDED,
        (
            "d = 280 bounds the rank at 282 and the matrix has 250: the bound is not reached, because directions of "
            "the hidden states, the output embeddings or the log-partition are missing or lie below the tolerance"
        ),
    ),
    "more than the bound": (
        replace(SURE, value=290, low=290, high=290),
        BOUNDED,
        (
            "d = 280 bounds the rank at 282 and the matrix has 290: more than algebra allows, so the numbers are less "
            "precise than eps says; measure with a larger --eps"
        ),
    ),
    "bounded, not determinate": (
        replace(SURE, value=270, low=260, determinate=False),
        BOUNDED,
        (
            "d = 280 bounds the rank at 282 and the matrix has 270, between 260 and 282, depending on the tolerance: "
            "indeterminate"
        ),
    ),
    "too few contexts": (
        replace(SURE, value=100, low=100, high=100),
        BOUNDED | {"shape": (100, 10_000)},
        (
            "d = 280 bounds the rank at 282 and the matrix has 100: 100 contexts are too few to show the bound; "
            "measure more than 282"
        ),
    ),
    "a bound above M": (
        replace(SURE, value=50, low=50, high=50),
        BOUNDED | {"shape": (1_000, 50)},
        "d = 280 bounds the rank at 282 and the matrix has 50: full rank, so this output layer is no bottleneck",
    ),
    "no bound, not determinate": (
        OPEN,
        FREE,
        "no bound; rank 9,981 of 10,000, between 9,713 and 9,999, depending on the tolerance: indeterminate",
    ),
    "no bound, full": (
        replace(SURE, value=10_000, low=10_000, high=10_000),
        FREE,
        "no bound; rank 10,000 of 10,000: full rank, so this output layer is no bottleneck",
    ),
    "no bound, centred rows": (
        replace(SURE, value=9_999, low=9_999, high=9_999),
        FREE,
        "no bound; rank 9,999 of 10,000: full rank but for one direction",
    ),
    "no bound, few contexts": (
        replace(SURE, value=30, low=30, high=30),
        FREE | {"shape": (30, 10_000)},
        "no bound; rank 30 of 30: full rank for so few contexts; measure more than 10,000",
    ),
    "few different contexts": (
        replace(SURE, value=30, low=30, high=30),
        FREE | {"shape": (900, 700), "distinct": (30, 700)},
        "no bound; rank 30 of 700: as many as there are different contexts; measure more than 700 different ones",
    ),
    "few different columns": (
        replace(SURE, value=30, low=30, high=30),
        FREE | {"distinct": (82_430, 30)},
        "no bound; rank 30 of 10,000: as many as there are different columns",
    ),
    "a matrix": (
        replace(SURE, value=16, low=16, high=16),
        FREE | {"shape": (128, 16), "of_a_model": False},
        "no bound; rank 16 of 16: full rank",
    ),
    "a matrix of lower rank": (
        SURE,
        FREE | {"of_a_model": False},
        "no bound; rank 282 of 10,000: below full rank",
    ),
    "a matrix with copies": (
        replace(SURE, value=30, low=30, high=30),
        FREE | {"shape": (900, 700), "distinct": (30, 700), "of_a_model": False},
        "no bound; rank 30 of 700: as many as there are different rows",
    ),
    "no bound, low": (SURE, FREE, "no bound; rank 282 of 10,000: below full rank, although no bound is known"),
    "doubted in an interval": (
        replace(OPEN, **DOUBTED),
        FREE,
        (
            "no bound; rank 9,981 of 10,000, between 9,713 and 9,999, depending on the tolerance: indeterminate, "
            "the numbers were rounded"
        ),
    ),
    "doubted, one number": (
        replace(SURE, **DOUBTED),
        FREE,
        "no bound; rank 282 of 10,000: indeterminate, the numbers were rounded",
    ),
    "a sketch": (
        replace(OPEN, value=800, at_least=True),
        FREE,
        "no bound; rank at least 800 of 10,000: a sketch gives only this lower bound",
    ),
    "a sketch that reaches the bound": (
        replace(SURE, at_least=True, determinate=False),
        BOUNDED,
        "d = 280 bounds the rank at 282 and the matrix has exactly 282: this output layer is the bottleneck",
    ),
    "a sketch below the bound": (
        replace(SURE, value=200, at_least=True, determinate=False),
        BOUNDED,
        "d = 280 bounds the rank at 282 and the matrix has at least 200: a sketch gives only this lower bound",
    ),
    "too coarse": (
        replace(SURE, value=0, low=0, high=0, determinate=False),
        BOUNDED,
        "d = 280 bounds the rank at 282; the numbers are too coarse to tell any rank",
    ),
    "too coarse, no bound": (
        replace(SURE, value=0, low=0, high=0, determinate=False),
        FREE,
        "no bound; the numbers are too coarse to tell any rank",
    ),
    "zero": (
        replace(SURE, value=0, low=0, high=0),
        FREE,
        "no bound; rank 0 of 10,000: every entry is zero",
    ),
}


@pytest.mark.parametrize(("estimate", "known", "sentence"), CASES.values(), ids=CASES)
def test_every_case(estimate: RankEstimate, known: dict[str, Any], sentence: str) -> None:
    assert verdict(estimate, **known) == sentence


def test_a_report_ends_with_it() -> None:
    found = rank(np.random.default_rng(0).standard_normal((60, 40)), kind="matrix")
    assert found.verdict == "no bound; rank 40 of 40: full rank"
    assert str(found).splitlines()[-1].strip() == f"verdict  {found.verdict}"
