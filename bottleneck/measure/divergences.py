"""How far one next-token distribution is from another, context by context, and the estimates over all contexts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..spectrum import Precision
from .standard_errors import Starts, half_width, standard_error

Matrix = NDArray[np.float64]
Values = NDArray[np.float64]

TOP = 5
"""Number of likeliest tokens whose overlap is measured."""
DRAFTS = 4
"""γ, the number of drafted tokens of which speculative sampling accepts some."""
LLAMA_CPP_LEAST = -16.0
"""llama.cpp's ``perplexity --kl-divergence`` sums over tokens whose log-probability in the reference exceeds this."""
KL_SHARES = (0.5, 0.9, 0.95, 0.99, 0.999)
DELTA_SHARES = (0.01, 0.05, 0.5, 0.95, 0.99)
"""Percentiles that are reported, as shares."""
PARTS = 256
"""Number of parts of a row whose maxima show how large its largest numbers are."""
LARGEST_LOG = 700.0
"""A logarithm whose exponential float64 holds."""
NARROWER = torch.float32, torch.float16, torch.bfloat16
"""Types of entries, each narrower than the one before."""
SUMS = 2.0**-47
"""Bound on the relative error of NumPy's pairwise sums of at most 2²⁰ terms in float64, 64 · 2⁻⁵³ (Higham 1993)."""


@dataclass(frozen=True)
class Estimate:
    """A number estimated over the contexts."""

    value: float | None
    """``None`` if it is infinite."""
    standard_error: float | None
    """Standard error over blocks of contexts (`block_starts`); ``None`` where it is not known, as for a maximum."""
    roundoff: float | None
    """Bound on what rounding to the type of the entries, float64 sums, and unseen entries of a part of a distribution
    add: half the width of the interval about ``value``. ``None`` if ``value`` is a lower bound."""

    def end(self, sign: int, blocks: int, intervals: int = 1) -> float:
        """Return the upper (1) or lower (−1) end of the 95 % interval, or of one of several that hold at once."""
        if self.value is None or self.roundoff is None or self.standard_error is None:
            return sign * math.inf
        return self.value + sign * (self.roundoff + half_width(blocks, intervals) * self.standard_error)


@dataclass(frozen=True)
class ByContext:
    """A quantity of every context, each known to an interval: values ± error."""

    values: Values
    """(T,)."""
    error: Values
    """(T,), most by which each value may be off; infinite for a value that is a lower bound."""
    is_interval: bool = False
    """Whether the values are the middles of intervals, rather than what the numbers themselves give."""
    starts: Starts | None = None
    """First context of each block; ``None`` if contexts are independent."""

    @property
    def _ends(self) -> tuple[Values, Values]:
        return self.values - np.where(np.isinf(self.error), 0.0, self.error), self.values + self.error

    def mean(self) -> Estimate:
        """Return the mean, with the larger standard error of its interval's ends: each is the mean of a series."""
        value, moved = self.values.mean(), self.error.mean()
        value = self._ends[0].mean() if math.isinf(moved) else value
        return _estimate(value, max(map(self._standard_error, self._ends)), moved)  # that of the low end, beside NaN

    def _standard_error(self, values: Values) -> float:
        return standard_error(values, np.arange(len(values)) if self.starts is None else self.starts)

    def quantile(self, share: float) -> Estimate:
        """Return the value at the place q (n − 1) of the sorted ones, interpolated linearly.

        Its standard error is half the distance of the order statistics one standard deviation of the share of contexts
        below it to either side; a quantile of values ± error lies between those of values − error and values + error.
        """
        n = len(self.values)
        value = _at(np.sort(self.values), share * (n - 1))
        width = math.sqrt(n * share * (1 - share))
        if self.starts is not None and len(self.starts) < n:
            width = max(width, n * self._standard_error((self.values <= value).astype(np.float64)))
        low, high = share * (n - 1) - width, share * (n - 1) + width
        inside = 0 < share < 1 and low >= 0 and high <= n - 1
        with np.errstate(invalid="ignore"):  # ∞ − ∞
            ends = [np.sort(end) for end in self._ends]
            least, most = (_at(end, share * (n - 1)) for end in ends)
            if self.is_interval:
                value = (least + most) / 2 if math.isfinite(most) else least
            spread = max((_at(end, high) - _at(end, low)) / 2 for end in ends) if inside else math.nan
        return _estimate(value, spread, max(most - value, value - least))

    def root_mean_square(self) -> Estimate:
        """Return the root of the mean square, between those of the values nearest to zero and farthest from it."""
        low, high = self._ends
        squares = np.maximum(np.maximum(low, -high), 0.0) ** 2, np.maximum(-low, high) ** 2
        least, most = (math.sqrt(each.mean()) for each in squares)
        spread = max(
            self._standard_error(each) / (2 * of) if of else 0.0
            for each, of in zip(squares, (least, most), strict=True)
        )
        value = math.sqrt((self.values**2).mean())
        if self.is_interval:
            value = (least + most) / 2 if math.isfinite(most) else least
        return _estimate(value, spread, max(most - value, value - least))


def _estimate(value: float, standard_error: float, roundoff: float) -> Estimate:
    known = (float(each) if math.isfinite(each) else None for each in (value, standard_error, roundoff))
    return Estimate(*known)


def _at(values: Values, place: float) -> float:
    before = int(place)
    weight = place - before
    return float((1 - weight) * values[before] + weight * values[before + 1]) if weight else float(values[before])


class Distributions(NamedTuple):
    """Rows of one source, normalized in float64, each array (n, M)."""

    log_p: Matrix
    p: Matrix
    error: Matrix
    """Most by which the type of the entries changes each log-probability before the rows are normalized."""


def rounded(entries: NDArray[np.floating], eps: Precision) -> Matrix:
    """Return numbers of a relative roundoff in the next narrower type: float32, float16 or bfloat16."""
    types = (each for each in NARROWER if torch.finfo(each).eps > eps.value)
    return torch.from_numpy(entries.astype(np.float64)).to(next(types, NARROWER[-1])).double().numpy()


def normalized(entries: NDArray[np.floating], eps: Precision) -> Distributions:
    """Return log-probabilities or logits of some tokens, (n, M), as distributions over these tokens."""
    entries = entries.astype(np.float64)
    # Logits and their normalization are rounded to one type.
    error = eps.value * np.maximum(np.abs(entries), eps.size or 0.0) + SUMS
    error[np.isneginf(entries)] = 0.0
    log_p = entries - entries.max(1, keepdims=True)
    p = np.exp(log_p)
    total = p.sum(1, keepdims=True)
    return Distributions(log_p - np.log(total), p / total, error)


def divergences(P: Distributions, Q: Distributions, targets: NDArray[np.int64] | None = None) -> dict[str, Values]:
    r"""Return every quantity of n contexts with its error, (2, n) each.

    With l = log p, d = log p − log q and m = (p + q)/2,

    .. math:: KL(P‖Q) = \sum p d + q - p, \quad \log(p/m) = -\log(1 + ½(e^{-d} - 1)), \quad TV = ½ \sum |p - q|

    where q − p = p (e^{−d} − 1) keeps its digits for small d, so that equal rows have no roundoff of first order.

    For entries that are off by e and e', ∂KL/∂l = p (d − KL) and ∂KL/∂l' = q − p bound the error of all three
    divergences D by Σ max(p, q) (e + e') (|d| + D + e + e'), which is of second order for equal rows. A share of
    contexts is off by those whose likeliest tokens are closer than their errors.

    Args:
        P: rows of the reference.
        Q: rows of the model.
        targets: (n,), the tokens that follow; without them quantities that need none are returned.
    """
    masked = bool(np.isneginf(P.log_p).any() or np.isneginf(Q.log_p).any())

    def mean(p: Matrix, x: Matrix) -> Values:
        product = p * x
        if masked:
            product[p == 0] = 0.0
        return np.asarray(product.sum(1))

    with np.errstate(invalid="ignore"):
        d = P.log_p - Q.log_p
        if masked:
            d[np.isnan(d)] = 0.0  # probability 0 in both
        change = np.where(np.abs(d) < 1, P.p * np.expm1(-np.clip(d, -1, 1)), Q.p - P.p)
        kl = np.maximum((np.where(P.p > 0, P.p * d, 0.0) + change).sum(1), 0.0)
        reverse = np.maximum((np.where(Q.p > 0, -Q.p * d, 0.0) - change).sum(1), 0.0)
        near = np.clip(d, -LARGEST_LOG, LARGEST_LOG)
        p_side, q_side = -np.log1p(np.expm1(-near) / 2), -np.log1p(np.expm1(near) / 2)
        to_middle, q_to_middle = mean(P.p, p_side), mean(Q.p, q_side)
        error = P.error + Q.error
        e, moved = ((np.maximum(P.p, Q.p) * each).sum(1) for each in (error, error * (np.abs(near) + error)))
        cut = (np.where(P.log_p > LLAMA_CPP_LEAST, P.p * d, 0.0) + change).sum(1)  # changes sum to 0
        off = P.error + 2 * e[:, None]
        unsure = np.where(P.log_p <= LLAMA_CPP_LEAST, P.p * (1 + np.abs(near)) * (off + Q.error), 0.0)
        unsure += np.where(np.abs(P.log_p - LLAMA_CPP_LEAST) <= off, P.p * np.abs(near), 0.0)
        jsd = np.maximum(to_middle + q_to_middle, 0.0) / 2
        found = {
            "kl": (kl, moved + kl * e),
            "kl_llama_cpp": (cut, moved + kl * e + unsure.sum(1)),
            "reverse_kl": (reverse, moved + reverse * e),
            "jsd": (jsd, moved + jsd * e),
            "tv": (np.abs(P.p - Q.p).sum(1) / 2, np.minimum(e, 1.0)),
            "entropy": (-mean(P.p, P.log_p), np.zeros(len(kl))),
            **agreement(P, Q),
            **({} if targets is None else _losses(P, Q, targets, e)),
        }
    return {name: np.stack(each) for name, each in found.items()}


def _losses(
    P: Distributions, Q: Distributions, targets: NDArray[np.int64], e: Values
) -> dict[str, tuple[Values, Values]]:
    """Return what depends on the tokens that follow, given the mean errors of the rows."""
    at = np.arange(len(targets)), targets
    off, q_off = P.error[at] + e, Q.error[at] + e
    nll, q_nll = -P.log_p[at], -Q.log_p[at]
    return {
        "reference_nll": (nll, off),
        "nll": (q_nll, q_off),
        "log_ratio": (q_nll - nll, off + q_off),
        "delta_p": (Q.p[at] - P.p[at], P.p[at] * off + Q.p[at] * q_off),
    }


def agreement(
    P: Distributions, Q: Distributions, seen: NDArray[np.bool_] | None = None
) -> dict[str, tuple[Values, Values]]:
    """Return whether the likeliest tokens of n contexts agree, with 1 as error where rounding may decide, (n,) each.

    A token of P that is not ``seen``, (n, M), has at most the given probability.
    """
    (tokens, open_first, open_top), (q_tokens, q_open_first, q_open_top) = _likeliest(P, seen), _likeliest(Q)
    count = min(TOP, P.p.shape[1])
    overlap = (tokens[:, :count, None] == q_tokens[:, None, :count]).any(2).mean(1)
    same = tokens[:, 0] == q_tokens[:, 0]
    return {
        "same_top": (same.astype(np.float64), (open_first | q_open_first).astype(np.float64)),
        "top_5": (overlap, (open_top | q_open_top).astype(np.float64)),
    }


def _likeliest(
    rows: Distributions, seen: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the `TOP` likeliest tokens and one more, (n, 6), and whether roundoff may change the first, or the set."""
    count = min(TOP + 1, rows.p.shape[1])
    tokens = np.array([_largest(row, count) for row in rows.log_p])
    log_p, error = (np.take_along_axis(each, tokens, 1) for each in (rows.log_p, rows.error))
    is_open = ~(log_p[:, :-1] - log_p[:, 1:] > error[:, :-1] + error[:, 1:])
    hidden = np.zeros(tokens.shape, bool) if seen is None else ~np.take_along_axis(seen, tokens, 1)
    first = is_open[:, :1].any(1) | (hidden[:, :1] & (count > 1)).any(1)
    return tokens, first, is_open[:, TOP - 1 : TOP].any(1) | (hidden[:, :TOP] & (count > TOP)).any(1)


def _largest(row: Values, count: int) -> NDArray[np.int64]:
    """Return the places of a row's largest numbers, (count,), of equal ones the first: each is in a part's maximum."""
    least = np.sort(np.maximum.reduceat(row, np.arange(0, len(row), max(1, len(row) // PARTS))))[-count:][0]
    places = np.flatnonzero(row >= least)
    return places[np.argsort(-row[places], kind="stable")[:count]]


def statistics(found: Mapping[str, ByContext], *, like_llama_cpp: bool = False) -> dict[str, Estimate]:
    """Return the estimates over all contexts, by name, in the order of a table."""
    result: dict[str, Estimate] = {}
    for name, loss in (("reference_perplexity", "reference_nll"), ("perplexity", "nll")):
        if loss in found:
            result[name] = _changed(found[loss].mean(), math.exp, math.exp)
    if "log_ratio" in found:
        result["log_ratio"] = found["log_ratio"].mean()
        result["perplexity_ratio"] = _changed(result["log_ratio"], math.exp, math.exp)
    kl = found["kl_llama_cpp" if like_llama_cpp else "kl"]
    result["kl"] = kl.mean()
    result |= {f"kl_{100 * share:g}": kl.quantile(share) for share in KL_SHARES} | {"kl_max": kl.quantile(1.0)}
    if not like_llama_cpp and "kl_llama_cpp" in found:
        result["kl_llama_cpp"] = found["kl_llama_cpp"].mean()
    result |= {name: found[name].mean() for name in ("reverse_kl", "jsd", "tv") if name in found}
    result["acceptance"] = _changed(result["tv"], lambda tv: 1 - tv, lambda _: 1.0)
    result["tokens_a_step"] = _changed(
        result["acceptance"],
        lambda alpha: sum(min(max(alpha, 0.0), 1.0) ** i for i in range(DRAFTS + 1)),
        lambda alpha: sum(i * alpha ** (i - 1) for i in range(1, DRAFTS + 1)),
        is_interval="coverage" in found,
    )
    if "delta_p" in found:
        change = found["delta_p"]
        result |= {"delta_p": change.mean(), "delta_p_rms": change.root_mean_square()}
        result |= {f"delta_p_{100 * share:g}": change.quantile(share) for share in DELTA_SHARES}
    result |= {name: found[name].mean() for name in ("same_top", "top_5", "coverage", "kl_floor") if name in found}
    if like_llama_cpp and any(each.error.any() for each in found.values()):  # whose errors are of the numbers alone
        exact = {name: replace(each, error=np.zeros_like(each.error)) for name, each in found.items()}
        plain = statistics(exact, like_llama_cpp=True)
        result = {name: replace(each, standard_error=plain[name].standard_error) for name, each in result.items()}
    return result


def _changed(
    estimate: Estimate, to: Callable[[float], float], slope: Callable[[float], float], *, is_interval: bool = False
) -> Estimate:
    """Return a monotone function of an estimate's interval, its standard error times the largest slope of the ends."""
    roundoff = estimate.roundoff or 0.0
    if estimate.value is None or estimate.value + roundoff > LARGEST_LOG:
        return Estimate(None, None, None)
    places = [estimate.value + sign * roundoff for sign in (-1, 0, 1)]
    low, value, high = sorted(map(to, places))
    value = (low + high) / 2 if is_interval else value
    error = estimate.standard_error and max(abs(slope(each)) for each in places) * estimate.standard_error
    return Estimate(value, error, None if estimate.roundoff is None else max(high - value, value - low))
