"""Derive two ranks from a spectrum and the roundoff of its entries, with every reason to doubt them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .precision import EPS, Precision
from .rules import MARGIN, NOISE_FACTOR, RankEstimate, count_above, entry_roundoff, numerical_rank, tolerance
from .values import Spectrum

DROP, WIDE = 30.0, 1e6
"""Ratios of neighbouring singular values that end a spectrum: above noise that was seen, and above Press's tolerance,
which exceeds the roundoff that it estimates by a factor that grows with the matrix."""
STRAY = 100.0
"""Times that errors which depend on each other may stand above the noise of independent ones."""
OWN = 16 * EPS["float64"]
"""Most that LAPACK's own roundoff adds to a singular value, relative to the largest."""
GAP = 1.5
"""Least ratio of neighbouring singular values that no noise has."""
CENTERED = 1 - 1e-9
"""Least ratio of the norms after and before row-centring at which the rows were centred already."""
UNSEEN = 1 / 32
"""Size, relative to the entries, of the noise that may hide where too few directions are left to show it: that of
five bits."""


class Judgement(NamedTuple):
    """The numerical ranks of one matrix."""

    raw: RankEstimate
    centered: RankEstimate
    """Rank of the matrix with each row's mean subtracted."""


def judge(
    spectrum: Spectrum,
    eps: Precision,
    *,
    rule: str = "press",
    recorded: Precision | None = None,
    rank_warning: str = "",
    norm: float | None = None,
) -> Judgement:
    r"""Return the raw and the row-centred rank of a spectrum.

    No tolerance is below the method's own error, nor below :math:`\tfrac12 ε \|Z\|_F`, the most that rounding the
    entries of Z can add to a singular value, nor below twice the norm of the noise that the entries show. Z is the raw
    matrix for the row-centred rank, and the logits for both ranks of a normalized matrix.

    A rank is determinate if tolerances ten times larger and smaller give it as well, or if the spectrum ends there: a
    singular value is followed by one that is `DROP` times smaller and lies in the noise that was seen, or by one that
    is `WIDE` times smaller and below the tolerance. The raw rank is the row-centred one or one more, so a determinate
    row-centred rank limits the raw one. If the precision is assumed, directions below noise that is coarser than the
    precision, and a full rank that leaves too few directions to show such noise, are open. NumPy's rule keeps its own
    count: where the spectrum ends elsewhere, the rank is open.

    Args:
        spectrum: the spectrum.
        eps: roundoff that the tolerances follow from.
        rule: as for `numerical_rank`.
        recorded: recorded or inferred roundoff of the entries, if the caller gave ``eps``. A finer ``eps`` does not
            make the entries more exact, so the ranks then cover both.
        rank_warning: sentence that says why any rank of the matrix is doubtful.
        norm: Frobenius norm of the numbers that were rounded, if the matrix is the difference of two.
    """
    norm = _norm(spectrum.values, spectrum.residual) if norm is None else norm
    judgement = _coupled(
        _rank(spectrum, spectrum.values, eps, rule, norm=None, error=spectrum.error),
        _rank(spectrum, spectrum.centered, eps, rule, norm=norm, error=spectrum.centered_error),
        spectrum.values,
        least=max(
            entry_roundoff(norm, eps.value), MARGIN * spectrum.error, NOISE_FACTOR * eps.noise_norm(spectrum.shape)
        ),
        hides=eps.rounding is not None and _norm(spectrum.centered) < CENTERED * norm,
    )
    if recorded is not None and recorded.value > eps.value:
        coarser = judge(spectrum, recorded, rule=rule)
        why = f"eps {eps.value:.2g} is finer than the roundoff of the numbers ({recorded.dtype or recorded.value})"
        judgement = Judgement(*(_for_both(*pair, why) for pair in zip(judgement, coarser, strict=True)))
    if rank_warning:
        T, M = spectrum.shape
        open_ranks = (
            replace(each, low=min(each.low, 1), high=max(1, min(T, full)), determinate=False, doubt=rank_warning)
            for each, full in zip(judgement, (M, M - 1), strict=True)
        )
        judgement = Judgement(*open_ranks)
    return Judgement(*(replace(each, value=each.low) if each.at_least else each for each in judgement))


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
    size, residual = math.sqrt(T * M), spectrum.residual
    norms = [*([] if norm is None else [norm]), *([] if eps.size is None else [eps.size * size])]
    floor = max([error, *(entry_roundoff(each, eps.value) for each in norms)])
    noise = eps.noise_norm((T, M))
    rank = numerical_rank(values, shape=(T, M), eps=eps.value, rule=rule, floor=floor, noise=noise, residual=residual)
    full = min(T, M if norm is None else M - 1)
    rows, columns = eps.distinct or (T, M)
    filled = min(full, rows, columns if norm is None else columns - 1)  # by roundoff: copies add no direction
    values = values[:filled]
    high = min(rank.high, max(full, rank.low))
    rank = replace(rank, high=high, determinate=rank.determinate or rank.low == high < rank.high)
    seen, counted = 0.0, rank
    roundoff = max(floor, tolerance(rank.sigma_1, (T, M), eps.value, rule))
    if noise:
        stored = eps.value / math.sqrt(12) * max([_norm(values), *norms]) / size  # by the type that holds the entries
        seen = max(error, NOISE_FACTOR * (noise + stored * (math.sqrt(T) + math.sqrt(M))))
        residual = residual if residual > NOISE_FACTOR * (eps.noise or 0.0) * size else 0.0
        own = eps.rounding is None or eps.rounding.dtype == eps.dtype
        rank = _above_noise(rank, values, seen, full=full, roundoff=roundoff, own=own)
    if not rank.determinate and not residual and seen <= roundoff and (end := _end(values, roundoff)):
        rank = _ended(rank, values, end)
    rank = replace(rank, at_least=rank.at_least and residual > 0)
    if rule == "numpy" and rank.determinate and rank.value != counted.value:  # its tolerance exceeds the roundoff
        low, high = sorted((rank.value, counted.value))
        rank = replace(counted, low=low, high=high, determinate=False)
    if eps.size and entry_roundoff(eps.size * size, eps.value) >= rank.tolerance:
        rank = replace(rank, high=full, determinate=False)  # large logits, whose rounding may hide any direction
    if eps.assumed and eps.value >= EPS["float16"] and full > rank.low:
        rank = replace(rank, high=full, determinate=False)  # so coarse a type hides more than its margin
    if norms and values.size and 10 * EPS["float64"] * max(norms) < values[0] <= rank.tolerance:
        drowned = "the entries' roundoff may be larger than every singular value"
        rank = replace(rank, high=full, determinate=False, doubt=drowned)
    centered_before = norm is None and _norm(spectrum.centered) > CENTERED * _norm(values)  # as by a layer norm
    if eps.assumed and eps.noise is None and full > 1 and rank.high >= min(filled, T - 1, M - centered_before):
        largest = max([_norm(values), *norms]) / size
        hidden = NOISE_FACTOR * UNSEEN * largest * (math.sqrt(T) + math.sqrt(M))
        low = min(rank.low, max(1, count_above(values, hidden)))
        unseen = "so few directions are left that they do not show whether the numbers were rounded"
        rank = rank if low == rank.low else replace(rank, low=low, determinate=False, doubt=rank.doubt or unseen)
    return replace(rank, determinate=rank.determinate and not rank.at_least)


def _above_noise(
    rank: RankEstimate, values: NDArray[np.float64], seen: float, *, full: int, roundoff: float, own: bool
) -> RankEstimate:
    """Return the rank of a matrix whose noise adds at most ``seen`` to a singular value.

    ``rank`` is that by the tolerance, ``full`` the largest possible one, ``roundoff`` the tolerance that follows from
    the precision, and ``own`` whether the noise is no coarser than the precision.
    """
    # Errors that depend on each other, such as those of a column's mean, stand above independent ones.
    certain, above = max(count_above(values, STRAY * seen), 1), count_above(values, seen)
    places = np.arange(certain, min(above, values.size - 1) + 1)
    gaps = values[places - 1] / np.maximum(values[places], seen) if places.size else np.ones(1)
    # The last gap that is large beside the largest one: the direction of the words' frequencies stands before one too.
    last = int(np.flatnonzero(np.log(gaps) >= np.log(gaps.max()) / 2)[-1])
    gap, low = float(gaps[last]), int(places[last]) if places.size else certain
    if gap > (DROP if own else WIDE) and low == above:
        return _ended(rank, values, low)
    low = min(rank.value, low if gap > GAP else certain)
    if seen <= roundoff / MARGIN:  # what stands above the noise is there, whatever the tolerance
        low, high = min(rank.low, max(low, 1)), max(rank.high, above)
        return replace(rank, low=low, high=high, determinate=rank.determinate and low == high)
    doubt = f"a floor of noise stands at σ = {seen / NOISE_FACTOR:.3g}, and what lies below it cannot be told"
    return replace(rank, low=low, high=full, determinate=False, doubt=doubt)


def _end(values: NDArray[np.float64], roundoff: float) -> int | None:
    """Return the number of values above roundoff, if the next one is much smaller."""
    end = count_above(values, roundoff)
    return end if 0 < end < values.size and values[end - 1] > WIDE * values[end] else None


def _ended(rank: RankEstimate, values: NDArray[np.float64], end: int) -> RankEstimate:
    """Return a rank where the spectrum ends."""
    last, following = float(values[end - 1]), float(values[end])
    gap = last / following if following > last * EPS["float64"] ** 2 else None
    between = math.sqrt(last * max(following, last / WIDE))
    limit = rank.tolerance if last > rank.tolerance >= following else between
    ended = replace(rank, value=end, low=end, high=end, determinate=True, doubt="")
    return replace(ended, tolerance=limit, sigma_r=last, sigma_next=following, gap=gap)


def _coupled(
    raw: RankEstimate, centered: RankEstimate, values: NDArray[np.float64], *, least: float, hides: bool
) -> Judgement:
    """Return both ranks, the raw one limited by the other: row-centring removes one direction or none.

    The large mean of the raw matrix hides directions below its tolerance, so a raw rank does not limit the other.
    ``values`` are those of the raw matrix, a direction exceeds ``least``, and ``hides`` says whether noise coarser than
    the precision may hide the direction that row-centring removes. Roundoff may hide it where the first direction that
    is not counted stands above all further ones.
    """
    if not centered.determinate or raw.at_least:
        return Judgement(raw, centered)
    low, high = centered.value, min(centered.value + 1, values.size)
    if raw.value <= low and low < high:
        following = float(values[low + 1]) if low + 1 < values.size else 0.0
        hides |= values[low] > max(GAP * following, OWN * float(values[0])) and following > 0
        if values[low] > max(least, DROP * following):  # a direction that the tolerance hides
            raw = _ended(raw, values, high) if high < values.size else replace(raw, value=high, low=high, high=high)
    if hides and raw.value == low < high and raw.determinate:
        raw = replace(raw, high=high, determinate=False, doubt="roundoff may hide the direction of the rows' means")
    elif raw.determinate and low <= raw.value <= high:
        return Judgement(raw, centered)
    value = min(max(raw.value, low), high)
    low, high = max(low, min(raw.low, high)), min(high, max(raw.high, low))
    doubt = "" if low == high else raw.doubt
    return Judgement(replace(raw, value=value, low=low, high=high, determinate=low == high, doubt=doubt), centered)


def _for_both(asked: RankEstimate, recorded: RankEstimate, why: str) -> RankEstimate:
    low, high = min(asked.low, recorded.low), max(asked.high, recorded.high)
    proved = recorded if asked.at_least and recorded.value < asked.value else asked
    return proved if low == high else replace(proved, low=low, high=high, determinate=False, doubt=why)


def _norm(values: NDArray[np.float64], residual: float = 0.0) -> float:
    """Return the Frobenius norm, without squares that leave float64's range."""
    largest = float(values.max(initial=0.0))
    return math.hypot(largest * float(np.linalg.norm(values / largest)), residual) if largest else residual
