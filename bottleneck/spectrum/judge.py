"""Judge two ranks by a spectrum and the roundoff of its entries: a list of rules, each of which gives an interval.

`SETTLING` holds the rules of which the first that applies gives the interval, and `DOUBTS` those that widen it. Each is
a function of the singular values and a `Evidence`, for one numbered sentence of docs/trust.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .precision import ALIKE, EPS, MORE, Precision
from .rules import (
    MARGIN,
    NOISE_FACTOR,
    Interval,
    RankEstimate,
    count_above,
    entry_roundoff,
    estimate,
    press,
    tolerance,
)
from .values import Spectrum

Values = NDArray[np.float64]

DROP = 30.0
"""Ratio of neighbouring singular values that ends a spectrum above noise that was seen."""
STRAY = 100.0
"""Times that errors which depend on each other, such as those of a column's mean, may stand above the noise of
independent ones."""
WIDE = 1e6
"""Ratio of neighbouring singular values that no rounding leaves across Press's tolerance, which exceeds the roundoff
that it estimates by a factor that grows with the matrix, or above noise coarser than the type."""
UNSEEN = 1 / 8
"""Size, relative to the entries, of the noise that may hide where too few directions are left to show it: that of
three bits, or of steps of 0.43 of the entries."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a matrix beside its singular values."""

    eps: Precision
    full: int
    """The largest rank of such a matrix."""
    filled: int
    """The largest rank that roundoff fills: copies of rows and columns add no direction."""
    nearly_full: int
    """The rank from which nothing is left to show noise; centred rows or columns leave one direction empty."""
    limit: float
    """The tolerance."""
    roundoff: float
    """The tolerance that follows from the precision alone."""
    noise: float
    """The most that noise which was seen adds to a singular value; 0 if none was seen."""
    unseen: float
    """The most that noise adds which may be there where none can be seen."""
    residual: float
    """Frobenius norm of what a sketch left out, unless it is that noise."""
    rounded: float
    """Frobenius norm of the numbers that were rounded, if these are not the entries themselves."""
    logits: float
    """`entry_roundoff` of the logits before they were normalized."""


OF_ROUNDING = "so few directions are left", "a floor of noise stands", "below σ ="
"""How doubts begin that a given precision settles, if the numbers were never rounded to another type."""
Rule = Callable[[Values, Evidence], Interval | None]


class Judgement(NamedTuple):
    """The numerical ranks of one matrix."""

    raw: RankEstimate
    centered: RankEstimate
    """Rank of the matrix with each row's mean subtracted."""


def judge(
    spectrum: Spectrum,
    eps: Precision,
    *,
    recorded: Precision | None = None,
    rank_warning: str = "",
    norm: float | None = None,
) -> Judgement:
    r"""Return the raw and the row-centred rank of a spectrum.

    No tolerance is below the method's own error, nor below :math:`\tfrac12 ε \|Z\|_F`, the most that rounding the
    entries of Z can add to a singular value, nor below twice the norm of the noise that the entries show. Z is the raw
    matrix for the row-centred rank, and the logits for both ranks of a normalized matrix.

    Args:
        spectrum: the spectrum.
        eps: roundoff that the tolerances follow from.
        recorded: recorded or inferred roundoff of the entries, if the caller gave ``eps``. A finer ``eps`` does not
            make the entries more exact, so the ranks then cover both.
        rank_warning: sentence that says why any rank of the matrix is doubtful.
        norm: Frobenius norm of the numbers that were rounded, if the matrix is the difference of two.
    """
    found = _intervals(spectrum, eps, norm)
    if recorded is not None and recorded.value > eps.value:
        why = f"eps {eps.value:.2g} is finer than the roundoff of the numbers ({recorded.dtype or recorded.value})"
        coarser = _intervals(spectrum, recorded)
        found = [(_hull(one, other, why), evidence) for (one, evidence), (other, _) in zip(found, coarser, strict=True)]
    if rank_warning:
        found = [(_hull(one, Interval(1, max(1, c.full), rank_warning), rank_warning), c) for one, c in found]
    size = min(spectrum.shape)
    return Judgement(
        *(
            estimate(values, interval, evidence.limit, size=size, residual=evidence.residual)
            for values, (interval, evidence) in zip((spectrum.values, spectrum.centered), found, strict=True)
        )
    )


def _intervals(spectrum: Spectrum, eps: Precision, norm: float | None = None) -> list[tuple[Interval, Evidence]]:
    """Return the interval of each of the two matrices by the rules, and what is known of it."""
    norm = _norm(spectrum.values, spectrum.residual) if norm is None else norm
    size, found = min(spectrum.shape), []
    for values, error, rounded in (
        (spectrum.values, spectrum.error, 0.0),
        (spectrum.centered, spectrum.centered_error, norm),
    ):
        padded = np.pad(values, (0, size - values.size))
        evidence = _evidence(spectrum, padded, eps, rounded, error)
        found.append((_by_rules(padded[: evidence.filled], evidence), evidence))
    (raw, evidence), (centered, of_centered) = found
    coherent = eps.coarse is not None and not _is_centered(spectrum, norm)
    roundoff, error, noise = entry_roundoff(norm, eps.value), MARGIN * spectrum.error, eps.noise_norm(spectrum.shape)
    values = np.pad(spectrum.values, (0, 2))
    raw = _coupled(raw, centered, values, evidence, roundoff=roundoff, error=error, noise=noise, hides=coherent)
    return [(raw, evidence), (centered, of_centered)]


def _evidence(spectrum: Spectrum, values: Values, eps: Precision, norm: float, error: float) -> Evidence:
    """Return what is known of one of the two matrices; ``norm`` is that of the matrix whose rows were centred, or 0."""
    (T, M), entries = spectrum.shape, math.sqrt(math.prod(spectrum.shape))
    (rows, columns), is_centered = eps.distinct or (T, M), bool(norm > 0)
    logits = (eps.size or 0.0) * entries
    rounded = max(norm, logits)
    own = _norm(values)
    floor = max(error, entry_roundoff(rounded, eps.value))
    noise, random = eps.noise_norm((T, M)), math.sqrt(T) + math.sqrt(M)  # the norm of a random matrix
    stored = eps.value / math.sqrt(12) * max(own, rounded) / entries
    largest = math.hypot(values[0], spectrum.residual)
    press_limit = max(floor, tolerance(largest, (T, M), eps.value))
    outside = NOISE_FACTOR * eps.noise.deviation * entries if eps.noise else 0.0
    were_centered = not is_centered and _is_centered(spectrum, own)  # as by a layer norm
    filled = min(T, M - is_centered, rows, columns - is_centered)
    return Evidence(
        eps=eps,
        full=min(T, M - is_centered),
        filled=filled,
        nearly_full=min(filled, T - 1, M - were_centered),
        limit=max(press_limit, NOISE_FACTOR * noise if math.isfinite(noise) else 0.0),
        roundoff=max(floor, tolerance(values[0], (T, M), eps.value)),
        noise=max(error, NOISE_FACTOR * (noise + stored * random)) if noise else 0.0,
        unseen=NOISE_FACTOR * UNSEEN * max(own, rounded) / entries * random,
        residual=spectrum.residual if spectrum.residual > outside else 0.0,
        rounded=rounded,
        logits=entry_roundoff(logits, eps.value),
    )


def _by_rules(values: Values, evidence: Evidence) -> Interval:
    """Return the interval of the first rule that settles it, widened by every doubt."""
    found = _settled(values, evidence)
    for doubt in DOUBTS:
        if widened := doubt(values, evidence):
            found = _hull(found, widened, found.why or widened.why)
    return found


def _settled(values: Values, evidence: Evidence) -> Interval:
    return next(filter(None, (rule(values, evidence) for rule in SETTLING)))


def ends_in_noise(values: Values, evidence: Evidence) -> Interval | None:
    """Rule 1: the spectrum ends in noise that was seen, with a gap that is wide for noise of this kind."""
    if not evidence.noise or evidence.residual:
        return None
    end, gap = _last_gap(values, evidence.noise)
    is_wide = gap > (WIDE if evidence.eps.coarse else DROP)
    return Interval(end, end) if is_wide and end == count_above(values, evidence.noise) else None


def ends(values: Values, evidence: Evidence) -> Interval | None:
    """Rule 2: a gap across Press's tolerance that no roundoff has ends the spectrum."""
    end = count_above(values, evidence.roundoff)
    if evidence.residual or evidence.noise > evidence.roundoff or not 0 < end < values.size:
        return None
    return Interval(end, end) if values[end - 1] > WIDE * values[end] else None


def behind_noise(values: Values, evidence: Evidence) -> Interval | None:
    """Rule 3: directions above the noise that was seen are there, and others may lie below it."""
    if not evidence.noise:
        return None
    end, gap = _last_gap(values, evidence.noise)
    low = min(count_above(values, evidence.limit), end if gap > NOISE_FACTOR else _certain(values, evidence.noise))
    if evidence.noise <= evidence.roundoff / MARGIN:  # what stands above the noise is there, whatever the tolerance
        found = by_press(values, evidence)
        return Interval(min(found.low, max(low, 1)), max(found.high, count_above(values, evidence.noise)))
    why = f"{OF_ROUNDING[1]} at σ = {evidence.noise / NOISE_FACTOR:.3g}, and what lies below it cannot be told"
    why = ALIKE if math.isinf(evidence.noise) else why
    if evidence.eps.noise and evidence.eps.noise.may_be_signal:
        why = f"{OF_ROUNDING[2]} {evidence.noise / NOISE_FACTOR:.3g} the numbers look rounded, or {MORE}"
    return Interval(low, evidence.full, why)


def by_press(values: Values, evidence: Evidence) -> Interval:
    """Rule 4: the counts at ten times Press's tolerance and at a tenth of it."""
    low, high, _ = press(values, evidence.limit, evidence.residual)
    return Interval(low, max(low, min(high, evidence.full)))


def hidden_by_rounding(values: Values, evidence: Evidence) -> Interval | None:
    """Rule 5: the rounding of large numbers, or to a narrow type or decimals, hides directions below the tolerance."""
    if MARGIN * EPS["float64"] * evidence.rounded < values.max(initial=0.0) <= evidence.limit:
        return Interval(evidence.full, evidence.full, "the roundoff may be larger than every singular value")
    is_narrow = evidence.eps.assumed and evidence.eps.value >= EPS["float16"]
    if evidence.eps.assumed and evidence.eps.dtype is None:
        return Interval(
            evidence.full, evidence.full, "the numbers have few decimals, and what these rounded away cannot be told"
        )
    is_large = evidence.logits >= evidence.limit > 0 and not ends_in_noise(values, evidence)
    return Interval(evidence.full, evidence.full) if is_narrow or is_large else None


def unseen(values: Values, evidence: Evidence) -> Interval | None:
    """Rule 6: where almost no direction is left, noise as large as a coarse rounding makes it would not be seen."""
    if not evidence.eps.assumed or evidence.eps.noise or evidence.full < 2:
        return None
    if not hidden_by_rounding(values, evidence) and _settled(values, evidence).high < evidence.nearly_full:
        return None
    low = max(1, count_above(values, evidence.unseen))
    return Interval(low, low, f"{OF_ROUNDING[0]} that they do not show whether the numbers were rounded")


SETTLING: tuple[Rule, ...] = (ends_in_noise, ends, behind_noise, by_press)
DOUBTS: tuple[Rule, ...] = (hidden_by_rounding, unseen)


def _last_gap(values: Values, noise: float) -> tuple[int, float]:
    """Return the place of the last large gap between values above the noise, and its ratio."""
    certain = _certain(values, noise)
    places = np.arange(certain, min(count_above(values, noise), values.size - 1) + 1)
    if not places.size:
        return certain, 1.0
    gaps = values[places - 1] / np.maximum(values[places], noise)
    # The last gap that is large beside the largest one: the direction of the words' frequencies stands before one too.
    last = int(np.flatnonzero(np.log(gaps) >= np.log(gaps.max()) / 2)[-1])
    return int(places[last]), float(gaps[last])


def _certain(values: Values, noise: float) -> int:
    """Return how many values stand even above errors that depend on each other, such as those of a column's mean."""
    return max(count_above(values, STRAY * noise), 1)


def _coupled(
    raw: Interval, centered: Interval, values: Values, evidence: Evidence, *,
    roundoff: float, error: float, noise: float, hides: bool,
) -> Interval:  # fmt: skip
    """Return the raw rank, limited by a determinate row-centred one: row-centring removes one direction or none.

    The large mean of the raw matrix hides directions below its tolerance, so a raw rank does not limit the other.
    ``values`` are those of the raw matrix, a direction exceeds its ``roundoff`` and twice the norm of its ``noise``, if
    some was seen, LAPACK's roundoff does not exceed ``error``, and ``hides`` says whether noise coarser than the
    precision may hide the direction that row-centring removes. Roundoff may hide it where the first direction that is
    not counted stands above all further ones, or above that noise.
    """
    if centered.low < centered.high or evidence.residual > evidence.limit:
        return raw
    low, high = centered.low, min(centered.low + 1, values.size - 2)
    if min(max(count_above(values, evidence.limit), raw.low), raw.high) <= low < high:
        first, following = values[low : low + 2]
        if first > max(roundoff, error, NOISE_FACTOR * noise, DROP * following):  # a direction that the tolerance hides
            return Interval(high, high)
        hides |= first > max(NOISE_FACTOR * min(following, noise or following), error) and following > 0
        if hides and raw.low == raw.high == low:
            return Interval(low, high, "roundoff may hide the direction of the rows' means")
    return Interval(max(low, min(raw.low, high)), min(high, max(raw.high, low)), raw.why)


def _hull(one: Interval, other: Interval, why: str) -> Interval:
    return Interval(min(one.low, other.low), max(one.high, other.high), why)


def _is_centered(spectrum: Spectrum, norm: float) -> bool:
    """Return whether the rows were centred already, up to the roundoff of squares: centring removes no norm."""
    return norm - _norm(spectrum.centered) <= math.sqrt(EPS["float64"]) * norm


def _norm(values: Values, residual: float = 0.0) -> float:
    """Return the Frobenius norm, without squares that leave float64's range."""
    largest = float(values.max(initial=0.0))
    return math.hypot(largest * float(np.linalg.norm(values / largest)), residual) if largest else residual
