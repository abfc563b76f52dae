"""Derive two ranks from a spectrum and the roundoff of its entries, with every reason to doubt them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .precision import EPS, Precision
from .rounding import SUM, Rounding
from .rules import MARGIN, RankEstimate, entry_roundoff, numerical_rank
from .values import Spectrum

TELLING = 100.0
"""A drop outside the margin makes the rank doubtful if it is this many times the largest drop inside."""
ALREADY = 1 - 1e-9
"""Least ratio of the norms after and before row-centring at which the rows were centred already."""
LEAST_DROP = 10.0
"""Smallest ratio of neighbouring values that counts as a drop."""


class Judgement(NamedTuple):
    """The numerical ranks of one matrix."""

    raw: RankEstimate
    centered: RankEstimate
    """Rank of the matrix with each row's mean subtracted."""


def judge(
    spectrum: Spectrum, eps: Precision, *, rule: str = "press", recorded: Precision | None = None, caution: str = ""
) -> Judgement:
    r"""Return the raw and the row-centred rank of a spectrum.

    No tolerance is below the method's own error, nor below :math:`\tfrac12 ε \|Z\|_F`, the most that rounding the
    entries of Z can add to a singular value. Z is the raw matrix for the row-centred rank, and the logits for both
    ranks of a normalized matrix.

    Args:
        spectrum: the spectrum.
        eps: roundoff that the tolerances follow from.
        rule: as for `numerical_rank`.
        recorded: recorded or inferred roundoff of the entries, if the caller gave ``eps``. A finer ``eps`` does not
            make the entries more exact, so the ranks then cover both.
        caution: sentence that says why any rank of the matrix is doubtful.
    """
    norm = _norm(spectrum.values, spectrum.residual)
    judgement = Judgement(
        _rank(spectrum, spectrum.values, eps, rule, norm=None, error=spectrum.error),
        _rank(spectrum, spectrum.centered, eps, rule, norm=norm, error=spectrum.centered_error),
    )
    if recorded is not None and recorded.value > eps.value:
        coarser = judge(spectrum, recorded, rule=rule)
        why = f"eps {eps.value:.2g} is finer than the roundoff of the numbers ({recorded.dtype or recorded.value})"
        judgement = Judgement(*(_for_both(*pair, why) for pair in zip(judgement, coarser, strict=True)))
    if caution:
        T, M = spectrum.shape
        open_ranks = (
            replace(each, low=min(each.low, 1), high=max(1, min(T, full)), determinate=False, doubt=caution)
            for each, full in zip(judgement, (M, M - 1), strict=True)
        )
        judgement = Judgement(*open_ranks)
    return judgement


def _rank(
    spectrum: Spectrum,
    values: NDArray[np.float64],
    eps: Precision,
    rule: str,
    *,
    norm: float | None,
    error: float,
) -> RankEstimate:
    """Return the rank of one of the two matrices; ``norm`` is the norm of the matrix that was rounded."""
    T, M = spectrum.shape
    sources = [*([] if norm is None else [norm]), *([] if eps.size is None else [eps.size * math.sqrt(T * M)])]
    floor = max([error, *(entry_roundoff(source, eps.value) for source in sources)])
    rounding, residual = eps.rounding, spectrum.residual
    noise = 0.0 if rounding is None else rounding.noise((T, M))
    rank = numerical_rank(values, shape=(T, M), eps=eps.value, rule=rule, floor=floor, noise=noise, residual=residual)

    def rounded_to(dtype: str, share: float = 1.0) -> RankEstimate:
        """Return the rank, or a lower one if the entries were rounded to ``dtype``."""
        step = EPS[dtype] * max([_norm(values), *sources]) / math.sqrt(T * M)
        coarse = Rounding(step, share, dtype).noise((T, M))
        coarsest = numerical_rank(values, shape=(T, M), eps=eps.value, rule=rule, floor=floor, noise=coarse)
        low = min(rank.low, coarsest.low)
        return replace(rank, low=low, determinate=rank.determinate and low == rank.low)

    if rounding is not None and rounding.dtype in (None, SUM):  # the sum of two models' logits repeats less than either
        rank = rounded_to("bfloat16", rounding.share)
    full = min(T, M if norm is None else M - 1)
    rows, columns = eps.distinct or (T, M)
    filled = min(full, rows, columns if norm is None else columns - 1)  # by roundoff: copies add no direction
    values = values[:filled]  # neither the zero that centring leaves nor those of copies are drops
    high = min(rank.high, max(full, rank.low))
    rank = replace(rank, high=high, determinate=rank.determinate or rank.low == high < rank.high)
    if eps.assumed and eps.value >= EPS["float16"] and full > rank.low:
        rank = replace(rank, high=full, determinate=False)  # so coarse a type hides more than its margin
    if noise and not rank.determinate:
        rank = replace(rank, doubt="rounding hides what lies below the tolerance")
    if not eps.tested and rank.high >= filled and full > 1:
        unseen = "so few numbers do not show whether they were rounded before normalization"
        rank = replace(rank, determinate=False, low=min(rank.low, 1), doubt=rank.doubt or unseen)
    if sources and values.size and 10 * EPS["float64"] * max(sources) < values[0] <= rank.tolerance:
        drowned = "the entries' roundoff may be larger than every singular value"
        rank = replace(rank, high=full, determinate=False, doubt=drowned)
    if not eps.assumed or residual or not values.size:
        return rank
    stored = eps.value / math.sqrt(12) * max([_norm(values), *sources]) * (1 / math.sqrt(T) + 1 / math.sqrt(M))
    least = max(error, EPS["float64"] * float(values[0]))
    known = values[values > least]
    followed = known if known.size == values.size else np.append(known, least)
    rank = _with_drops(rank, followed, stored, to_zero=values.size - known.size == 1)
    if norm is None and _norm(spectrum.centered) > ALREADY * _norm(values):
        full -= 1  # rows whose means are zero, as of a layer norm
    if eps.unseen and rank.high >= min(filled, full) > 1 and (low := rounded_to(eps.unseen).low) < rank.low:
        unseen = f"so few numbers do not show whether they were rounded to {eps.unseen}"
        rank = replace(rank, low=low, determinate=False, doubt=rank.doubt or unseen)
    return rank


def _with_drops(rank: RankEstimate, values: NDArray[np.float64], stored: float, *, to_zero: bool) -> RankEstimate:
    """Return a rank of assumed precision, made doubtful if there is a far larger drop outside its margin.

    Args:
        rank: rank by the tolerance.
        values: singular values above the method's error, followed by that error if there are more.
        stored: expected norm of the error of rounding the entries to their type; drops below it are noise.
        to_zero: whether the last value alone is zero: that of a centred matrix, whose drop shows nothing.
    """
    if values.size < 2:
        return rank
    drops = values[:-1] / values[1:]
    if to_zero:
        drops[0] = drops[-1] = 1.0  # nor does that after the direction of the mean
    inside = drops[max(rank.low - 1, 0) : rank.high]  # those that cross the margin, or lie within it
    outside = drops.copy()
    outside[max(rank.low - 1, 0) : rank.high] = 0.0
    outside[values[:-1] <= 2 * stored] = 0.0
    place = int(np.argmax(outside))
    if outside[place] < LEAST_DROP or outside[place] < TELLING * float(inside.max(initial=1.0)):
        return rank
    doubt = (
        f"the largest drop, σ_{place + 1}/σ_{place + 2} = {outside[place]:.3g}, stands outside the margin of a factor "
        f"{MARGIN:g} around the tolerance, whose eps is assumed"
    )
    low, high = min(rank.low, place + 1), max(rank.high, place + 1)
    return replace(rank, low=low, high=high, determinate=False, doubt=rank.doubt or doubt)


def _for_both(asked: RankEstimate, recorded: RankEstimate, why: str) -> RankEstimate:
    low, high = min(asked.low, recorded.low), max(asked.high, recorded.high)
    proved = recorded if asked.at_least and recorded.value < asked.value else asked
    return proved if low == high else replace(proved, low=low, high=high, determinate=False, doubt=why)


def _norm(values: NDArray[np.float64], residual: float = 0.0) -> float:
    """Return the Frobenius norm, without squares that leave float64's range."""
    largest = float(values[0])
    return math.hypot(largest * float(np.linalg.norm(values / largest)), residual) if largest else residual
