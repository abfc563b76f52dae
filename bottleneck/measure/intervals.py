"""Intervals of divergences where a part of the reference's distribution is unseen."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..sources import Part
from .divergences import LLAMA_CPP_LEAST, Distributions, Matrix, Values, agreement

STEPS, CLOSE = 100, 1e-13
"""Most steps that find the distribution nearest to Q, and by how much the sum of its probabilities may miss 1."""
LARGEST = {"kl": math.inf, "jsd": math.log(2), "tv": 1.0}
"""The most that each divergence can be."""

Box = tuple[Matrix, Matrix]
"""Distributions whose probabilities lie between two numbers each, (n, M); from 0 for an unseen token."""


def nearest(box: Box, q: Matrix) -> Matrix:
    r"""Return the distribution p in a box that has the least f-divergence from q, for every convex f.

    For :math:`\sum_i q_i f(p_i / q_i)` and the constraint :math:`\sum p_i = 1` the multiplier gives every free token
    the same ratio: p is q times a number, clipped to the box. Newton's steps find the number, and bisection where they
    leave its bracket.
    """
    n = len(q)
    low, high, ratio = np.full((n, 1), 0.0), np.full((n, 1), np.inf), np.ones((n, 1))
    for _ in range(STEPS):
        scaled = ratio * q
        p = np.clip(scaled, *box)
        excess = p.sum(1, keepdims=True) - 1
        if (np.abs(excess) <= CLOSE).all():
            break
        low, high = np.where(excess < 0, ratio, low), np.where(excess > 0, ratio, high)
        free = np.where((scaled > box[0]) & (scaled < box[1]), q, 0.0).sum(1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = ratio - excess / free
            between = np.where(np.isinf(high), 2 * ratio, np.where(low > 0, np.sqrt(low * high), high / 1024))
        step = np.where((newton > low) & (newton < high), newton, between)
        ratio = np.where(np.abs(excess) <= CLOSE, ratio, step)
    return p


def most(term: Callable[[Matrix], Matrix], box: Box) -> Values:
    r"""Return an upper bound of :math:`\sum_i h_i(p_i)`, h convex, over the distributions p in a box, (n,).

    Each h is below its chord between the ends of its interval, and the sum of the chords is largest where the tokens of
    the steepest ones have their largest probability until nothing is left: one token lies between its ends, and the
    bound exceeds the maximum by no more than that token's distance from its chord.
    """
    ends = term(box[0]), term(box[1])
    width, least = box[1] - box[0], ends[0].sum(1)
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        gain = ends[1] - ends[0]
        slope = np.divide(gain, width, out=np.zeros_like(gain), where=width > 0)
        order = np.argsort(-slope, axis=1)
        filled = np.cumsum(np.take_along_axis(width, order, 1), 1)
        total = 1 - box[0].sum(1, keepdims=True)
        last = np.take_along_axis(order, np.minimum((filled < total).sum(1, keepdims=True), width.shape[1] - 1), 1)
        ratio = np.take_along_axis(slope, last, 1)
        is_full = slope > ratio
        rest = np.clip(total - np.where(is_full, width, 0.0).sum(1, keepdims=True), 0.0, None)
        partly = np.where(rest > 0, rest * ratio, 0.0)[:, 0]
        return np.where(np.isinf(least), least, least + np.where(is_full, gain, 0.0).sum(1) + partly)


def interval_divergences(
    part: Part, Q: Distributions, targets: NDArray[np.int64] | None, *, is_llama_cpp: bool
) -> dict[str, Values]:
    r"""Return quantities of n contexts as the middle of an interval and half its width, (2, n) each.

    The interval holds all distributions P that the rows allow: each seen log-probability to within its error, each
    unseen probability at most the given one, their sum 1. KL(Q‖P) is left out, because it has no upper bound there; so
    is the loss of a target that is unseen, whose error is infinite.

    Args:
        part: rows of the reference, as many tokens as Q has.
        Q: rows of the model.
        targets: (n,), the tokens that follow, if they are known.
        is_llama_cpp: whether to return KL as llama.cpp defines it, on the grid's own numbers.
    """
    (low, high), q = part.box(), Q.p
    box = low, high

    def relative(p: Matrix, log_r: Matrix) -> Matrix:  # NumPy's logarithm is six times as fast as SciPy's rel_entr
        return np.where(p > 0, p * (np.log(np.where(p > 0, p, 1.0)) - log_r), 0.0)

    def halves(p: Matrix) -> Matrix:
        log_m = np.log((p + q) / 2)
        return (relative(p, log_m) + np.where(q > 0, q * (Q.log_p - log_m), 0.0)) / 2

    terms: dict[str, Callable[[Matrix], Matrix]] = {
        "kl": lambda p: relative(p, Q.log_p),
        "jsd": halves,
        "tv": lambda p: np.abs(p - q) / 2,
    }
    near = nearest(box, q)
    e = (q * Q.error).sum(1)
    farthest = np.maximum(high - q, q - low)
    of_model = {"kl": (farthest * Q.error).sum(1) + (q * Q.error**2).sum(1), "tv": e}
    of_model["jsd"] = of_model["kl"] + e
    with np.errstate(invalid="ignore", divide="ignore"):
        found = {
            name: _between(term(near).sum(1), most(term, box), of_model[name], least=0.0, largest=LARGEST[name])
            for name, term in terms.items()
        }
    p = np.exp(part.log_probs) * part.seen
    unseen, count = np.maximum(1 - p.sum(1), 0.0), np.maximum((~part.seen).sum(1), 1)
    spread = np.where(unseen > 0, unseen * np.log(np.where(unseen > 0, unseen, 1.0) / count), 0.0)
    found["entropy"] = -np.sum(p * part.log_probs, 1) - spread, np.zeros(len(p))  # of an even spread
    found["coverage"] = _between(low.sum(1), (high * part.seen).sum(1), largest=1.0)
    if is_llama_cpp:
        over = part.log_probs > LLAMA_CPP_LEAST
        p = np.where(over, np.exp(part.log_probs), 0.0)
        d = np.where(over, part.log_probs - Q.log_p, 0.0)
        found["kl_llama_cpp"] = (p * d).sum(1), of_model["kl"]
    errors = np.broadcast_to(part.error, p.shape)
    for name, (share, is_open) in agreement(Distributions(part.log_probs, p, errors), Q).items():
        found[name] = _between(share, share, is_open, least=0.0, largest=1.0)
    if targets is not None:
        at = np.arange(len(targets)), targets
        off = Q.error[at] + e
        nll, is_seen = -part.log_probs[at], part.seen[at]
        error = np.where(is_seen, errors[at] + part.shift, math.inf)
        found["reference_nll"], found["nll"] = (nll, error), (-Q.log_p[at], off)
        found["log_ratio"] = -Q.log_p[at] - nll, error + off
        found["delta_p"] = _between(q[at] - high[at], q[at] - low[at], q[at] * off)
    return {name: np.stack(each) for name, each in found.items()}


def _between(
    low: Values, high: Values, more: Values | float = 0.0, *, least: float = -math.inf, largest: float = math.inf
) -> tuple[Values, Values]:
    """Return the middle of an interval that is ``more`` wider to both sides and ends at ``least`` and ``largest``.

    Beside it stands half the width; where that is not known, beside the low end alone.
    """
    low, high = np.maximum(low - more, least), np.minimum(high + more, largest)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(high), (low + high) / 2, low), np.maximum((high - low) / 2, 0.0)
