"""Rows that are shifted, and tokens in another order, are named by a comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from softmax_bottleneck import compare
from softmax_bottleneck.measure.alignment import ROWS
from softmax_bottleneck.sources import PartialSource, open_source

T, M = 60, 300
Matrix = NDArray[np.float64]


def logits(seed: int) -> Matrix:
    """Return logits of rank 16 and a bias, (T, M)."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((T, 16)) @ rng.standard_normal((16, M)) + 2 * rng.standard_normal(M)


def notes(P: Any, Q: Any) -> list[str]:
    """Return what a comparison says about the order of rows and tokens."""
    found = compare(P, Q, kind="logits", examples=0, max_kl=1e9)
    named = [note for note in found.notes if "shifted" in note or "in another order" in note]
    assert not (named and found.passed)
    return named


P = logits(0)
NEAR = P + 0.05 * np.random.default_rng(1).standard_normal(P.shape)
ORDER = np.random.default_rng(2).permutation(M)


@pytest.mark.parametrize("rows", [1, -1, 2, -2])
@pytest.mark.parametrize("model", [P, NEAR], ids=["same", "near"])
def test_shifted_rows_are_named(rows: int, model: Matrix) -> None:
    (note,) = notes(P, np.roll(model, rows, 0))
    assert compare(P, model, kind="logits", max_kl=1.0).passed
    assert f"row t of P is closer to row t {'+' if rows > 0 else '−'} {abs(rows)} of Q" in note


def test_shifted_rows_of_a_part_of_the_probabilities_are_named() -> None:
    part = open_source(softmax(P, 1).round(4), kind="probabilities")
    assert isinstance(part, PartialSource)
    for rows in (0, 1):
        found = compare(part, open_source(np.roll(P, rows, 0), kind="logits"), examples=0)
        assert any("row t of P is closer to row t + 1 of Q" in note for note in found.notes) is (rows == 1)


@pytest.mark.parametrize("model", [P, NEAR], ids=["same", "near"])
@pytest.mark.parametrize("order", [ORDER, np.roll(np.arange(M), 1)], ids=["permuted", "one further"])
def test_tokens_in_another_order_are_named(order: NDArray[np.int64], model: Matrix) -> None:
    (note,) = notes(P, model[:, order])
    some, other = note.partition("such as ")[2].partition(":")[0].split(" as ")
    assert order[int(other)] == int(some)


OTHERS = {
    "same": P,
    "near": NEAR,
    "other model": logits(3),
    "rounded": np.round(P),
    "flatter": P / 2,
    "uniform": np.zeros_like(P),
    "reversed": P[::-1],
    "far away": np.roll(P, ROWS, 0),
    "pairs": np.repeat(P[:30], 2, 0),
    "truncated": np.where(NEAR < 0, -np.inf, NEAR),
    "noise": np.random.default_rng(4).standard_normal(P.shape),
}


UNIFORM, RNG = np.zeros((T, M)), np.random.default_rng(5)
UNIGRAM, OTHER = (np.tile(2 * RNG.standard_normal(M), (T, 1)) for _ in range(2))
LITTLE, TOO = (each + 0.02 * RNG.standard_normal((T, M)) for each in (UNIGRAM, OTHER))


@pytest.mark.parametrize(
    ("P", "Q"), [(UNIFORM, UNIFORM), (UNIGRAM, UNIGRAM), (UNIGRAM, OTHER), (LITTLE, TOO), (UNIFORM, UNIGRAM)]
)
def test_rows_that_hardly_differ_are_in_no_order(P: Matrix, Q: Matrix) -> None:
    assert notes(P, Q) == []


@pytest.mark.parametrize("name", OTHERS)
def test_other_differences_are_not_called_that(name: str) -> None:
    assert notes(P, OTHERS[name]) == []


def test_few_rows_tell_nothing() -> None:
    assert notes(P[:9], np.roll(P[:9], 1, 0)) == []
