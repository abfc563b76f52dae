"""Numerical rank from singular values: an interval, and the evidence for it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Number
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_positive, typed
from ..core.json_file import Count, Magnitude
from ..errors import MatrixError, look_up
from .effective_ranks import descending
from .precision import EPS, precision

NOTHING = "no singular value stands above roundoff, so there is nothing to draw on a logarithmic axis"
MARGIN = 10.0
"""A rank is determinate if tolerances that are larger and smaller by this factor give the same rank."""
NOISE_FACTOR = 2.0
"""Factor by which the norm of rounding noise may exceed its expected value: the step is known to a factor of two."""


class Interval(NamedTuple):
    """The ranks that a matrix may have."""

    low: int
    high: int
    why: str = ""
    """Why they are several, or a condition that begins with "if"; empty where the tolerance alone decides."""


@dataclass(frozen=True, repr=False)
class RankEstimate:
    """A numerical rank with the evidence for it; ``int(estimate)`` is its value."""

    value: Count
    """Number of singular values above the tolerance; ``low`` if no more is proved."""
    low: Count
    """The least rank that the matrix may have: without a further doubt, the rank at ten times the tolerance."""
    high: Count
    """The largest rank that it may have: without a further doubt, the rank at a tenth of the tolerance."""
    tolerance: Magnitude
    """Value that a singular value must exceed to count."""
    sigma_1: Magnitude
    """The largest singular value."""
    sigma_r: float | None
    """The smallest singular value counted; ``None`` for rank 0."""
    sigma_next: float | None
    """The largest singular value not counted; ``None`` at full rank, or if a sketch computed none."""
    gap: float | None
    """``sigma_r / sigma_next``; ``None`` if ``sigma_next`` is ``None``, zero or close to zero."""
    at_least: bool = False
    """Whether only "rank ≥ low" is proved, because the residual of a sketch is too large."""
    doubt: str = ""
    """Why the rank is open, beyond the choice of the tolerance; a condition that begins with "if"; or ""."""

    @property
    def determinate(self) -> bool:
        """Whether the matrix can have one rank only."""
        return self.low == self.high

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        values = asdict(self)
        ends = {name: values.pop(name) for name in ("value", "low", "high")}
        return {**ends, "determinate": self.determinate, **values}

    def __int__(self) -> int:
        """Return the rank."""
        return self.value

    def _refuse(self, other: object) -> NoReturn:
        raise TypeError(
            f"a rank has an interval: compare .value, .low or .high with {other!r}, as in report.rank.value"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __eq__(self, other: object) -> bool:
        """Return whether two estimates are the same; refuse a number."""
        if isinstance(other, Number):
            self._refuse(other)
        return isinstance(other, RankEstimate) and vars(self) == vars(other)

    def __repr__(self) -> str:
        """Return the rank and its interval, on one line."""
        return f"RankEstimate({self.value}, low={self.low}, high={self.high}, determinate={self.determinate})"

    def __str__(self) -> str:
        """Return the rank, or its interval if it is indeterminate."""
        least = "≥ " if self.at_least else ""
        condition = f" {self.doubt}" if self.doubt.startswith("if ") else ""
        if self.determinate or self.at_least:
            return f"{least}{self.low:,}{condition}"
        return f"between {self.low:,} and {self.high:,}"


def tolerance(sigma_1: float, shape: tuple[int, int], eps: float) -> float:
    r"""Return Press's tolerance :math:`\tfrac12 \sqrt{T + M + 1}\, σ_1 ε`, the expected roundoff of a singular value.

    Args:
        sigma_1: the largest singular value.
        shape: (T, M).
        eps: relative roundoff, in (0, 1).

    References:
        Press et al., Numerical Recipes, 3rd ed., §2.6; the papers' choice.
    """
    return 0.5 * math.sqrt(sum(shape) + 1) * sigma_1 * eps


def entry_roundoff(norm: float, eps: float) -> float:
    r"""Return :math:`\tfrac12 ε \|A\|_F`, the most that rounding A's entries can add to any singular value.

    The row-centred matrix is computed from the rounded entries of A, so its singular values below this are roundoff
    (Weyl: each σ_i changes by at most the norm of the perturbation).
    """
    return 0.5 * eps * norm


@typed
def numerical_rank(
    singular_values: Any,
    *,
    shape: tuple[int, int],
    eps: str | float,
    rule: str = "press",
    floor: float = 0.0,
    residual: float = 0.0,
) -> RankEstimate:
    """Count the singular values above Press's tolerance.

    Args:
        singular_values: (min(T, M),) or fewer, in any order, not negative; missing ones count as zero.
        shape: (T, M) of the matrix.
        eps: relative roundoff of the least precise step that computed the matrix, a type's name or a number.
        rule: ``"press"``, the only one that gives an interval; a report's ``rank_by_rule`` has what others count.
        floor: least tolerance; for a row-centred matrix, the `entry_roundoff` of the raw matrix.
        residual: Frobenius norm of the part outside the values (`Spectrum.residual`): each singular value lies
            between σ and √(σ² + ρ²), and the rank holds for all such values.

    Raises:
        ConfigurationError: for an unknown eps or rule.
        MatrixError: for values that cannot be the singular values of a matrix of this shape.

    Example:
        >>> numerical_rank([3.0, 1.0, 1e-9], shape=(5, 3), eps="float32").value
        2
    """
    check_positive(T=shape[0], M=shape[1])
    look_up("rule", rule, {"press": press})
    given, size = descending(singular_values), min(shape)
    if given.size > size:
        raise MatrixError(f"a matrix of this shape has {size} singular values, not {given.size}")
    values, roundoff = np.pad(given, (0, size - given.size)), precision(eps).value
    limit = max(tolerance(math.hypot(values[0], residual), shape, roundoff), floor)
    found = press(values, limit, residual)
    if tolerance(1.0, shape, roundoff) >= 1 and (values[0] or residual):
        found = Interval(0, size, "the roundoff may be larger than every singular value")
    return estimate(given, found, limit, size=size, residual=residual)


def press(values: NDArray[np.float64], limit: float, residual: float = 0.0) -> Interval:
    """Return the counts at `MARGIN` times the tolerance and at the same part of it, of all (min(T, M),) values."""
    return Interval(count_above(values, limit * MARGIN), count_above(np.hypot(values, residual), limit / MARGIN))


def estimate(
    values: NDArray[np.float64], found: Interval, limit: float, *, size: int, residual: float = 0.0
) -> RankEstimate:
    """Return an interval with the evidence that the spectrum holds for it.

    Args:
        values: the singular values that are known, (n,), descending.
        found: the ranks that the matrix may have.
        limit: tolerance; it moves between σ_r and σ_{r+1} where the interval leaves out the count at the limit.
        size: the largest rank.
        residual: as for `numerical_rank`; where it may lift a value above the limit, it leaves only a lower bound.
    """
    low, high, why = found
    is_open = count_above(np.hypot(values, residual), limit) > count_above(values, limit)
    at_least = bool(residual > limit or is_open) and low < size
    value = low if at_least else min(max(count_above(values, limit), low), high)
    padded = np.append(values, np.zeros(max(0, size + 1 - values.size)))
    last, following = float(padded[value - 1]), float(padded[value])
    if value and not last > limit >= following:
        limit = math.sqrt(last) * math.sqrt(max(following, EPS["float32"] * last))
    unseen = value >= (values.size if residual else size)
    return RankEstimate(
        value=value,
        low=low,
        high=size if at_least else high,
        tolerance=float(limit),
        sigma_1=float(padded[0]),
        sigma_r=last if value else None,
        sigma_next=None if unseen else following,
        gap=last / following if value and not unseen and following > last * EPS["float64"] ** 2 else None,
        at_least=at_least,
        doubt=why if low < high or why.startswith("if ") else "",
    )


def counts_by_rule(
    values: NDArray[np.float64], shape: tuple[int, int], eps: float, rank: RankEstimate
) -> dict[str, int]:
    r"""Return the rank, and what other rules count.

    NumPy's tolerance is :math:`\max(T, M)\, σ_1 ε` (the default of `numpy.linalg.matrix_rank`), at Penn Treebank's
    shape 542 times Press's. The gap rule takes the rank before the largest ratio of neighbours within the interval.

    Args:
        values: singular values, descending.
        shape: (T, M).
        eps: relative roundoff.
        rank: the rank by Press's rule.
    """
    low, high = max(rank.low, 1), min(rank.high, values.size)
    before_gap = rank.value
    if low < high:
        # A matrix of full rank has no next value; the least value that roundoff could produce replaces it.
        following = np.maximum(np.append(values, 0.0)[low : high + 1], rank.tolerance / MARGIN)
        before_gap = low + int(np.argmax(values[low - 1 : high] / following))
    sigma_1 = float(values[0]) if values.size else 0.0
    return {"press": rank.value, "numpy": count_above(values, max(shape) * sigma_1 * eps), "gap": before_gap}


def count_above(values: NDArray[np.float64], limit: float) -> int:
    """Return how many values exceed a limit."""
    return int(np.count_nonzero(values > limit))
