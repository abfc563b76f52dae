"""Which tokens can be the argmax: constructed hulls, exact programs over all rivals, and every certificate checked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from softmax_bottleneck.core.progress import Bar, Progress
from softmax_bottleneck.theory import ArgmaxReport, unargmaxable


def check(report: ArgmaxReport, W: NDArray[np.float64], b: NDArray[np.float64] | None = None) -> None:
    """Every token has what is promised of it, recomputed here in exact fractions."""
    b = np.zeros(len(W)) if b is None else b
    tokens = set(range(len(W)))
    bad, unknown = set(report.unargmaxable.tolist()), set(report.unknown.tolist())
    assert not bad & unknown
    assert set(report.certificates) == bad
    for token in tokens - bad - unknown:
        h = [Fraction(x) for x in report.contexts[token].tolist()]
        logits = [
            sum((Fraction(w) * x for w, x in zip(row, h, strict=True)), Fraction(shift))
            for row, shift in zip(W.tolist(), b.tolist(), strict=True)
            if shift > -np.inf
        ]
        ids = [i for i in tokens if b[i] > -np.inf]
        others = [z for i, z in zip(ids, logits, strict=True) if i != token]
        assert logits[ids.index(token)] > max(others, default=-np.inf)
    for token in bad:
        certificate = report.certificates[token]
        if b[token] == -np.inf:
            assert not certificate.tokens.size
            continue
        assert token not in certificate.tokens
        assert (certificate.weights > 0).all()
        assert certificate.weights.sum() == pytest.approx(1, abs=1e-12)
        size = abs(W).max()
        np.testing.assert_allclose(certificate.weights @ W[certificate.tokens], W[token], atol=1e-13 * size * len(W[0]))
        assert certificate.weights @ b[certificate.tokens] >= b[token] - 1e-13 * max(1.0, abs(b[np.isfinite(b)]).max())
    for token in bad | unknown:
        assert np.isnan(report.contexts[token]).all()
        assert np.isnan(report.margins[token])


def by_one_program(W: NDArray[np.float64], b: NDArray[np.float64], token: int) -> bool:
    """Is there a convex combination of all others that is the token's row, with at least its bias?"""
    others = np.setdiff1d(np.flatnonzero(np.isfinite(b)), token)
    if b[token] == -np.inf or not others.size:
        return bool(b[token] == -np.inf)
    found = linprog(
        -b[others],
        A_eq=np.vstack([W[others].T, np.ones(len(others))]),
        b_eq=np.append(W[token], 1.0),
        bounds=(0, None),
        method="highs",
    )
    # On a lattice this small, sums that are not equal differ by far more than roundoff.
    return found.status == 0 and -found.fun >= b[token] - 1e-9


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 25), st.booleans(), st.integers(0, 2))
def test_whole_numbers_are_decided_as_by_one_program(seed: int, d: int, vocab: int, biased: bool, masked: int) -> None:
    """On a lattice, with equal and zero rows, tokens on edges, biases and masked tokens: nothing is left unknown."""
    generator = np.random.default_rng(seed)
    W = generator.integers(-3, 4, (vocab, d)).astype(float)
    b = generator.integers(-3, 4, vocab).astype(float) if biased else np.zeros(vocab)
    b[1:][:masked] = -np.inf
    report = unargmaxable(W, b)
    assert report.unknown.size == 0
    check(report, W, b)
    assert report.unargmaxable.tolist() == [token for token in range(vocab) if by_one_program(W, b, token)]
    rows = [(*w, each) for w, each in zip(W.tolist(), b.tolist(), strict=True)]
    equal = [token for token, row in enumerate(rows) if rows.count(row) > 1 and math.isfinite(row[-1])]
    assert report.equal.tolist() == equal
    assert (f"{len(equal)} of which have another's row and tie at best" in str(report)) == bool(equal)


def test_a_polytope_is_its_vertices() -> None:
    W = np.random.default_rng(0).standard_normal((150, 3))
    report = unargmaxable(torch.from_numpy(W))
    check(report, W)
    assert sorted(set(range(150)) - set(report.unargmaxable.tolist())) == sorted(ConvexHull(W).vertices.tolist())
    values = report.to_dict()
    assert values["argmaxable"] + len(values["unargmaxable"]) == 150
    assert "of 150 tokens" in str(report)
    assert unargmaxable(W[:10].T).programs == 0  # more dimensions than tokens


def test_constructed_tokens_inside_the_hull() -> None:
    """Averages of others, deep inside, on a face, and a hair outside of it."""
    generator = np.random.default_rng(1)
    W = generator.standard_normal((100, 8))
    W /= np.linalg.norm(W, axis=1, keepdims=True)  # all on a sphere: all argmaxable
    inside = np.array([W[[3, 5]].mean(0), W[:50].mean(0), W[10] * 0.5 + W[11] * 0.25 + W[12] * 0.25, 0.2 * W[7]])
    outside = 1.0001 * W[20]
    everything = np.vstack([W, inside, outside])
    report = unargmaxable(everything)
    check(report, everything)
    assert report.unknown.size == 0
    assert report.unargmaxable.tolist() == [20, 100, 101, 102, 103]  # 1.0001 w beside 0.2 w hides w itself


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1e6, 1e150])
def test_the_scale_does_not_matter(scale: float) -> None:
    W = np.random.default_rng(3).standard_normal((60, 3))
    report = unargmaxable(scale * W)
    assert report.unargmaxable.tolist() == unargmaxable(W).unargmaxable.tolist()
    assert report.unknown.size == 0


def test_processes_agree_with_one() -> None:
    W = np.random.default_rng(4).standard_normal((150, 3))
    alone, together = unargmaxable(W), unargmaxable(W, workers=2)
    assert alone.programs > 100
    np.testing.assert_array_equal(alone.unargmaxable, together.unargmaxable)
    check(together, W)


class Counting(Progress, Bar):
    """A display that adds up what is decided."""

    done = 0

    @contextmanager
    def bar(self, description: str, total: int, unit: str, *, done: int = 0) -> Iterator[Bar]:
        self.total, self.done = total, done
        yield self

    def advance(self, amount: int, note: str = "") -> None:
        self.done += amount


@pytest.mark.parametrize("bias", [False, True])
def test_the_display_counts_each_token_once(bias: bool) -> None:
    rng, shown = np.random.default_rng(7), Counting()
    b = np.where(np.arange(120) < 3, -np.inf, rng.standard_normal(120)) if bias else None
    report = unargmaxable(rng.standard_normal((120, 3)), b, progress=shown)
    assert report.programs > 20
    assert report.unknown.size == 0
    assert (shown.done, shown.total) == (120, 120)


def test_a_narrow_lead_is_compared_in_float64() -> None:
    """Float32 does not tell these rows apart; each is the argmax of its own direction."""
    W = np.random.default_rng(8).standard_normal((40, 30))
    W = np.vstack([W, W + 1e-9 * np.random.default_rng(9).standard_normal(W.shape)])
    report = unargmaxable(W)
    check(report, W)
    assert report.unargmaxable.size == report.unknown.size == 0


def test_a_solver_out_of_time_says_unknown() -> None:
    W = np.random.default_rng(4).standard_normal((100, 3))
    whole = unargmaxable(W)
    stopped = unargmaxable(W, seconds=1e-9)
    assert stopped.unargmaxable.size == 0
    assert set(whole.unargmaxable.tolist()) <= set(stopped.unknown.tolist())
    assert len(stopped.unknown) <= stopped.programs
    assert f"undecided  {len(stopped.unknown)}" in str(stopped)


def test_what_roundoff_hides_is_unknown_or_certified_and_never_a_witness() -> None:
    """A token outside the hull by less than the logits' roundoff."""
    W = np.array([[1.0, 1.0], [-1.0, 1.0], [0.0, -1.0], [0.0, 1.0 + 2.0**-52]])
    report = unargmaxable(W)
    assert np.isnan(report.margins[3])
