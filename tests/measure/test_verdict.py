"""The sentence about a rank, and the one about what to do next, in every case that a report can be in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck import rank
from softmax_bottleneck.measure import verdict
from softmax_bottleneck.spectrum import RankEstimate


def estimate(value: int, low: int | None = None, high: int | None = None, **more: Any) -> RankEstimate:
    low, high = value if low is None else low, value if high is None else high
    return replace(RankEstimate(value, low, high, 1e-3, 9.0, 0.5, 1e-9, 5e8), **more)


BOUND, FREE = (282, 281), (None, None)
AT, MOST = "at its bound: the output layer allows", "the output layer allows 282 = d + 2"
OPEN = estimate(9_981, 9_713, 9_999)
SKETCH: dict[str, Any] = {"at_least": True}
ANOTHER, WIDER = "another output layer", "a larger width"
MATRIX = {"bound": FREE, "kind": "matrix"}

CASES: list[tuple[RankEstimate, dict[str, Any], str, str]] = [
    (estimate(282), {}, f"{AT} rank 282 = d + 2", ANOTHER),
    (estimate(282), {"embedding_size": None}, f"{AT} rank 282", ANOTHER),
    (estimate(250), {}, "below its bound: rank 250 of at most 282 = d + 2; directions of the hidden", "plot()"),
    (estimate(290), {}, "above its bound: rank 290, where algebra allows 282 = d + 2", "a larger eps"),
    (estimate(270, 260, 282), {}, f"open: the rank is between 260 and 282, and {MOST}; it depends on the", "eps says"),
    (estimate(100), {"shape": (100, 10_000)},
     "too few contexts: 100 show no rank above 100, and the output layer allows 282 = d + 2",
     "measure more than 282 contexts"),
    (estimate(40), {"shape": (100, 10_000)},
     "below its bound: rank 40 of at most 282 = d + 2 in 100 contexts; directions of the hidden", "plot()"),
    (estimate(50), {"shape": (1_000, 50)}, "not a bottleneck: full rank, 50 of 50", ""),
    (OPEN, {"bound": FREE},
     "beyond a softmax with d = 280, which has at most rank 282: rank between 9,713 and 9,999, depending on the", ""),
    (estimate(9_999), {"bound": FREE}, "full rank but for one direction: 9,999 of 10,000", ""),
    (estimate(30), {"bound": FREE, "shape": (30, 10_000)},
     "too few contexts: full rank, 30 of 30, for so few", "measure more than 10,000 contexts"),
    (estimate(30), {"bound": FREE, "shape": (900, 700), "distinct": (30, 700)},
     "too few different contexts: rank 30 of 700, as many as there are different contexts",
     "measure more than 700 different contexts"),
    (estimate(30), {"bound": FREE, "distinct": (82_430, 30)},
     "rank 30 of 10,000, as many as there are different columns", ""),
    (estimate(16), MATRIX | {"shape": (128, 16)}, "rank 16 of 16: full rank", ""),
    (estimate(30), MATRIX | {"shape": (900, 700), "distinct": (30, 700)},
     "rank 30 of 700, as many as there are different rows", ""),
    (estimate(282), {"bound": FREE},
     "no more than a softmax with d = 280, which has at most rank 282: rank 282 of 10,000", ""),
    (estimate(283), {"bound": FREE},
     "beyond a softmax with d = 280, which has at most rank 282: rank 283 of 10,000", ""),
    (estimate(282), {"bound": FREE, "embedding_size": None},
     "below full rank: 282 of 10,000; no bound of the output layer is known", "hidden"),
    (estimate(270, 260, 282), {"assumed": None}, "open: the rank is between 260 and 282", "plot() draws"),
    (replace(OPEN, doubt="the numbers were rounded"), {"bound": FREE},
     "open: the rank is between 9,713 and 9,999; the numbers were rounded", "float32 or float64"),
    (replace(OPEN, doubt="a floor of noise stands at σ = 2"), MATRIX,
     "open: the rank is between 9,713 and 9,999; a floor of noise", "eps='float32' settles it, if"),
    (replace(OPEN, doubt="rows crowd at -9: a floor; take log_softmax of the logits"), {"bound": FREE},
     "open: the rank is between 9,713 and 9,999; rows crowd at -9: a floor; take log_softmax of the logits", ""),
    (estimate(270, 260, 282), {"assumed": "float16"},
     f"open: the rank is between 260 and 282, and {MOST}; it depends on the", "float32 or float64"),
    (replace(OPEN, doubt="the numbers were rounded"), MATRIX | {"assumed": None},
     "open: the rank is between 9,713 and 9,999; the numbers were rounded", ""),
    (estimate(800, 700, 9_999, **SKETCH), {"bound": FREE},
     "open: the rank is at least 700; a sketch gives only this lower bound", WIDER),
    (estimate(282, 282, 10_000, **SKETCH), {}, f"{AT} rank 282 = d + 2", ANOTHER),
    (estimate(200, 200, 10_000, **SKETCH), {}, f"open: the rank is at least 200, and {MOST}; a sketch gives", WIDER),
    (estimate(0), {"bound": FREE}, "every entry is zero", ""),
    (estimate(282, 250, 282), {"centered": estimate(281)},
     f"{AT} row-centred rank 281 = d + 1", ANOTHER),
    (estimate(282, 250, 282), {"centered": estimate(200)},
     "below its bound: row-centred rank 200 of at most 281 = d + 1", "plot()"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "more", "sentence", "following"), CASES)
def test_every_case(found: RankEstimate, more: dict[str, Any], sentence: str, following: str) -> None:
    known = {"shape": (82_430, 10_000), "bound": BOUND, "embedding_size": 280, "centered": OPEN, "kind": "run"}
    known |= {"assumed": "float32", **more}
    known["bound"] = dict(zip(("raw", "centered"), known["bound"], strict=True))
    said = verdict(found, known.pop("centered"), **known)
    assert said.sentence.startswith(sentence)
    assert following in said.next
    assert bool(following) == bool(said.next)


def test_a_report_begins_with_it() -> None:
    report = rank(np.random.default_rng(0).standard_normal((400, 40)), kind="matrix")
    assert (report.verdict, report.next) == ("rank 40 of 40: full rank", "")
    lines = str(report).splitlines()
    assert len(lines) <= 7
    assert lines[0].strip() == "verdict  rank 40 of 40: full rank"
    assert report.details().splitlines()[0].strip() == lines[0].strip()
