"""Standard errors of means over the contexts of a text, whose neighbours are not independent."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len
from scipy.special import chdtri, stdtrit

Values = NDArray[np.float64]
Starts = NDArray[np.int64]

LONG = 8
"""Length of a block over the autocorrelation time: the variance of its mean is then at most about 5 % too small."""
FEWEST = 10
"""Smallest number of blocks; docs/trust.md has the measured coverage."""
CHANCE = 0.05
"""Chance at which longer blocks of independent contexts count as dependent."""
SEEN = 5
"""Lags over which autocorrelations are added up, as a multiple of the autocorrelation time (Sokal 1997, §3)."""
CONFIDENCE = 0.95
MANY, HEAVY = 100, 0.1
"""Count of numbers of which one holds so large a share of the sum that Student's interval may end too low."""


def autocorrelation_time(values: Values, lags: int) -> float:
    r"""Return :math:`1 + 2 \sum_k ρ_k`, by which correlation multiplies the variance of a mean, at least 1.

    The sum ends at `SEEN` times itself, beyond which autocorrelations are noise.
    """
    n, size = len(values), next_fast_len(2 * len(values), real=True)
    power = np.abs(np.fft.rfft(values - values.mean(), size)) ** 2
    covariance = np.fft.irfft(power, size)[: min(lags, n - 1) + 1]
    if covariance[0] <= 0:
        return 1.0
    times = 2 * np.cumsum(covariance / covariance[0]) - 1
    is_enough = np.arange(len(times)) >= SEEN * times
    return max(1.0, float(times[np.argmax(is_enough) if is_enough.any() else -1]))


def block_starts(series: list[Values], texts: Starts | None = None) -> Starts:
    """Return the first context of each block, (G,), for quantities of the same contexts, (T,) each.

    A block has `LONG` times the longest autocorrelation time of the quantities, or twice, four times … that where the
    standard error of one of them then is larger than `CHANCE` explains: a text whose parts differ is correlated over
    thousands of tokens, too little to be seen at one lag. At least `FEWEST` blocks remain; of at least as many
    ``texts``, whose first contexts are given, a block has whole ones, at least one. Where few of these blocks hold most
    contexts, so that they count as fewer than half of `FEWEST` equal ones (Kish), they are cut to a length of about
    n / `FEWEST`. An infinite value counts as the largest finite one.
    """
    n = len(series[0])
    most = max(1, n // FEWEST)
    finite = [np.minimum(values, values[np.isfinite(values)].max(initial=0.0)) for values in series]
    time = max(autocorrelation_time(values, most) for values in finite)
    length = min(most, math.ceil(LONG * time)) if time > 1 + 2 * math.sqrt(2 / n) else 1
    length = max(_longer(values, length, most) for values in finite)
    if texts is None or len(texts) < FEWEST:
        return _evenly(n, length)
    chosen = [0]
    for start in texts.tolist():
        if start - chosen[-1] >= length:
            chosen.append(start)
    sizes = np.diff([*chosen, n])
    if _kish(sizes) >= FEWEST / 2:
        return np.array(chosen)
    return np.concatenate([start + _evenly(size, most) for start, size in zip(chosen, sizes, strict=True)])


class Sampling(NamedTuple):
    """Contexts in the order of the blocks that standard errors count: copies of one, or of a whole text, are one."""

    order: Starts
    """(T,), contexts, each followed by its copies."""
    starts: Starts
    """First place in that order of each block."""
    different: int
    """Number of contexts without the copies."""
    effective: int
    """Number of contexts of one weight that tell as much of a mean: (Σw)² / Σw² of the copies w (Kish 1965, §11.7)."""
    blocks: int
    """The same number of blocks, which weigh as much as their contexts; of fewer than two nothing is known."""

    @classmethod
    def of(cls, series: list[Values], texts: Starts | None = None, first: Starts | None = None) -> Sampling:
        """Return how contexts count; ``first``, (T,), holds for each the first one that is equal to it."""
        n = len(series[0])
        units = np.arange(n) if first is None else first
        if texts is not None and (units != np.arange(n)).any():
            ends, found = np.append(texts[1:], n), dict[bytes, int]()
            of_texts = [found.setdefault(units[a:b].tobytes(), a) for a, b in zip(texts, ends, strict=True)]
            if len(found) >= FEWEST:  # whole texts are drawn, in which the contexts of one beginning are others
                units = np.repeat(of_texts, ends - texts) + np.arange(n) - np.repeat(texts, ends - texts)
        kept = units == np.arange(n)
        order, place = np.argsort(units, kind="stable"), np.empty(n, np.int64)
        place[order] = np.arange(n)
        begun = None if texts is None else (np.cumsum(kept) - 1)[texts[kept[texts]]]
        begins, different = block_starts([each[kept] for each in series], begun), int(kept.sum())
        starts = place[kept][begins]
        sizes, copied = np.diff(begins, append=different), np.diff(starts, append=n)
        effective, blocks = (int(_kish(each)) for each in (np.bincount(units), copied / sizes))
        blocks = min(blocks, round(_kish(sizes)))
        return cls(order, starts if blocks > 1 else starts[:1], different, effective, blocks)


def _kish(weights: NDArray[Any]) -> float:
    return float(weights.sum() ** 2 / (weights**2).sum())


def _evenly(n: int, length: int) -> Starts:
    return np.arange(0, max(1, n - length // 2), length)


def _longer(values: Values, length: int, most: int) -> int:
    """Return the length of a block, doubled up to ``most``, that has the largest standard error beyond chance."""
    found, largest = length, standard_error(values, _evenly(len(values), length))
    first = largest
    while (length := 2 * length) <= most:
        starts = _evenly(len(values), length)
        error, freedom = standard_error(values, starts), len(starts) - 1
        if error > max(largest, first * math.sqrt(chdtri(freedom, CHANCE) / freedom)):
            found, largest = length, error
    return found


def standard_error(values: Values, starts: Starts) -> float:
    """Return the standard error of the mean of (T,) values over blocks that begin at ``starts``; NaN for one block.

    It is that of a ratio of sums over blocks, which may differ in length (Cochran 1977, §6.4).
    """
    count = len(starts)
    if count < 2 or not np.isfinite(values).all():
        return math.nan
    sums = np.add.reduceat(values - values.mean(), starts)
    return math.sqrt(count / (count - 1) * float(sums @ sums)) / len(values)


def half_width(blocks: int, intervals: int = 1) -> float:
    """Return half the width of the 95 % interval of a mean, as a multiple of its standard error over some blocks.

    Of several ``intervals`` all hold their means with that probability or a higher one (Bonferroni).
    """
    return float(stdtrit(blocks - 1, 1 - (1 - CONFIDENCE) / (2 * intervals))) if blocks > 1 else math.inf


def held_by_one(largest: float, mean: float, count: int) -> float:
    """Return the share of a sum that its largest number holds, if an interval about the mean may be too narrow, or 0.

    Where few numbers hold most of a sum, a sample often lacks them, and Student's interval ends too low.
    """
    is_heavy = count >= MANY and math.isfinite(largest) and largest > HEAVY * count * mean > 0
    return float(largest / (count * mean)) if is_heavy else 0.0


def wilson_end(share: float, error: float, blocks: int, contexts: int) -> float:
    """Return the lower end of Wilson's interval (1927) of a share with a standard error over blocks of contexts.

    The square z²/n is (z · error)²/(p(1 − p)), where dependent contexts count as fewer ones. They never count as more,
    so that the end grows with the share, and where all agree each counts: nothing shows a dependence there.
    """
    share = min(max(share, 0.0), 1.0)  # but for rounding
    spread = share * (1 - share)
    z2 = half_width(blocks) ** 2 * max(error**2 / spread if spread else 0.0, 1 / contexts)
    return (share + z2 / 2 - math.sqrt(z2 * spread + z2**2 / 4)) / (1 + z2)
