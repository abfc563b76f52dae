"""Intervals of divergences where a part of the reference's distribution is unseen."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..sources import Part
from .divergences import LLAMA_CPP_LEAST, Distributions, Matrix, Values, agreement

STEPS, CLOSE = 100, 1e-13
"""Most steps that find the distribution nearest to Q, and by how much the sum of its probabilities may miss 1."""
PIVOTS = 512
"""Number of slopes between which the one in question is found."""
TINY = np.finfo(np.float64).tiny
LARGEST = {"kl": math.inf, "jsd": math.log(2), "tv": 1.0}
"""The most that each divergence can be."""

Box = tuple[Matrix, Matrix]
"""Distributions whose probabilities lie between two numbers each, (n, M); from 0 for an unseen token."""


def nearest(box: Box, q: Matrix) -> tuple[Matrix, Matrix]:
    r"""Return the distribution p in a box that has the least f-divergence from q, for every convex f, and its ratio.

    For :math:`\sum_i q_i f(p_i / q_i)` and the constraint :math:`\sum p_i = 1` the multiplier gives every free token
    the same ratio: p is q times a number, clipped to the box. Newton's steps find the number, and bisection where they
    leave its bracket.
    """
    n = len(q)
    low, high, ratio = np.full((n, 1), 0.0), np.full((n, 1), np.inf), np.ones((n, 1))
    scaled, p = np.empty_like(q), np.empty_like(q)
    for _ in range(STEPS):
        np.multiply(ratio, q, out=scaled)
        np.minimum(np.maximum(scaled, box[0], out=p), box[1], out=p)
        excess = p.sum(1, keepdims=True) - 1
        if (np.abs(excess) <= CLOSE).all():
            break
        low, high = np.where(excess < 0, ratio, low), np.where(excess > 0, ratio, high)
        free = np.array([[row @ is_free] for row, is_free in zip(q, p == scaled, strict=True)])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = ratio - excess / free
            between = np.where(np.isinf(high), 2 * ratio, np.where(low > 0, np.sqrt(low * high), high / 1024))
        step = np.where((newton > low) & (newton < high), newton, between)
        ratio = np.where(np.abs(excess) <= CLOSE, ratio, step)
    return p, ratio


def most(ends: tuple[Matrix, Matrix], box: Box) -> Values:
    r"""Return an upper bound of :math:`\sum_i h_i(p_i)`, h convex, over the distributions p in a box, (n,).

    Each h is below its chord between the ends of its interval, where it has the values ``ends``, and the sum of the
    chords is largest where the tokens of the steepest ones have their largest probability until nothing is left: one
    token lies between its ends, and the bound exceeds the maximum by no more than that token's distance from its chord.
    """
    width, least = box[1] - box[0], ends[0].sum(1)
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        gain = ends[1] - ends[0]
        slope = gain / np.maximum(width, TINY)
        total = 1 - box[0].sum(1)
        ratio = np.array([_last(*row) for row in zip(slope, width, total, strict=True)])
        is_full = slope > ratio[:, None]
        rest = np.maximum(total - _sum(width, is_full), 0.0)
        partly = np.where(rest > 0, rest * ratio, 0.0)
        return np.where(np.isinf(least), least, least + _sum(gain, is_full) + partly)


def _last(slope: Values, width: Values, total: float) -> float:
    """Return the slope at which the widths of the steeper tokens reach ``total``: by bisection, then by sorting."""
    pivots = np.sort(slope[:: 1 + len(slope) // PIVOTS])
    first, last, before = 0, len(pivots) - 1, 0.0
    if not np.isfinite(pivots).all() or width @ (slope > pivots[0]) < total:
        return _steepest(slope, width, total)
    while last - first > 1:  # the widths above pivots[first] reach the total
        middle = (first + last) // 2
        mass = float(width @ (slope > pivots[middle]))
        if mass >= total:
            first = middle
        else:
            last, before = middle, mass
    near = np.flatnonzero((slope > pivots[first]) & (slope <= pivots[last]))
    return _steepest(slope[near], width[near], total - before) if before else _steepest(slope, width, total)


def _steepest(slope: Values, width: Values, total: float) -> float:
    order = np.argsort(-slope)
    return float(slope[order[min(int((np.cumsum(width[order]) < total).sum()), len(order) - 1)]])


def _sum(values: Matrix, mask: NDArray[np.bool_]) -> Values:
    """Return the sums of the rows' numbers in a mask; a product with it is faster than NumPy's ``where``."""
    with np.errstate(invalid="ignore"):  # ∞ · 0
        total = np.asarray((values * mask).sum(1))
    return total if np.isfinite(total).all() else np.sum(values, 1, where=mask)


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
    box, q, p = part.box(), Q.p, np.exp(part.log_probs)
    low, high = box
    is_whole = not np.isneginf(Q.log_p).any()
    of_q = q * (Q.log_p if is_whole else np.where(q > 0, Q.log_p, 0.0))

    def terms(p: Matrix, log_p: Matrix) -> dict[str, Matrix]:
        """Return the terms of each divergence of p from q."""
        of_p, to_q, m = p * log_p, p * Q.log_p, (p + q) / 2
        if not is_whole:
            of_p[p == 0] = to_q[p == 0] = 0.0
        kl = of_p - to_q
        of_p += of_q
        of_p /= 2
        of_p -= m * np.log(np.maximum(m, TINY))
        np.abs(np.subtract(p, q, out=m), out=m)
        return {"kl": kl, "jsd": of_p, "tv": np.divide(m, 2, out=m)}

    e = (q * Q.error).sum(1)
    farthest = np.maximum(high - q, q - low)
    of_model = {"kl": (farthest * Q.error).sum(1) + (q * Q.error**2).sum(1), "tv": e}
    of_model["jsd"] = of_model["kl"] + e
    error = part.error + part.shift
    log_low, log_high = part.log_probs - error, part.log_probs + error
    with np.errstate(invalid="ignore", divide="ignore"):
        near, ratio = nearest(box, q)
        log_near = np.minimum(np.log(ratio) + Q.log_p, log_high)
        np.maximum(log_near, log_low, out=log_near, where=part.seen)
        least = terms(near, log_near)
        ends = terms(low, log_low), terms(high, log_high)
        found = {
            name: _between(
                least[name].sum(1),
                most((ends[0][name], ends[1][name]), box),
                of_model[name],
                least=0.0,
                largest=largest,
            )
            for name, largest in LARGEST.items()
        }
    seen_p = p * part.seen
    unseen, count = np.maximum(1 - seen_p.sum(1), 0.0), np.maximum((~part.seen).sum(1), 1)
    spread = np.where(unseen > 0, unseen * np.log(np.where(unseen > 0, unseen, 1.0) / count), 0.0)
    found["entropy"] = -np.sum(seen_p * part.log_probs, 1) - spread, np.zeros(len(p))  # of an even spread
    found["coverage"] = _between(low.sum(1), (high * part.seen).sum(1), largest=1.0)
    if is_llama_cpp:
        over = part.log_probs > LLAMA_CPP_LEAST
        kl = p * (part.log_probs - Q.log_p)
        found["kl_llama_cpp"] = _sum(kl, over), of_model["kl"]
    errors = np.broadcast_to(part.error, p.shape)
    for name, (share, is_open) in agreement(Distributions(part.log_probs, seen_p, errors), Q, part.seen).items():
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
