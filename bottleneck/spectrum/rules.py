"""Numerical rank from singular values: three rules, and a margin around the tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Number
from typing import Any, Literal, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_positive, typed
from ..core.json_file import Count, Magnitude
from ..errors import ConfigurationError, MatrixError
from .measures import descending
from .precision import precision

Rule = Literal["press", "numpy", "gap"]
RULES: tuple[str, ...] = get_args(Rule)

MARGIN = 10.0
"""A rank is determinate if tolerances that are larger and smaller by this factor give the same rank."""

NOISE_FACTOR = 2.0
"""Factor by which the norm of rounding noise may exceed its expected value: the step is known to a factor of two."""


@dataclass(frozen=True, repr=False)
class RankEstimate:
    """A numerical rank with the evidence for it; ``int(estimate)`` is its value."""

    value: Count
    """Number of singular values above the tolerance; ``low`` if no more is proved."""
    low: Count
    """The rank at ten times the tolerance."""
    high: Count
    """The rank at a tenth of the tolerance."""
    determinate: bool
    """Whether ``low`` and ``high`` agree, and a singular value of this matrix can exceed the tolerance at all."""
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
    """Sentence with a further reason why the rank is indeterminate, a condition that begins with "if", or ""."""

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


def tolerance(sigma_1: float, shape: tuple[int, int], eps: float, rule: str) -> float:
    r"""Return the tolerance below which a singular value is roundoff.

    * ``press``: :math:`\tfrac12 \sqrt{T + M + 1}\, σ_1 ε`, the expected roundoff error (Press et al., Numerical
      Recipes, 3rd ed., §2.6); the papers' choice.
    * ``numpy``: :math:`\max(T, M)\, σ_1 ε`, the default of `numpy.linalg.matrix_rank`.
    * ``gap``: the tolerance of ``press``, within whose margin the rule looks for the largest gap.

    Args:
        sigma_1: the largest singular value.
        shape: (T, M).
        eps: relative roundoff, in (0, 1).
        rule: one of the three rules.

    Raises:
        ConfigurationError: for another rule.

    Example:
        >>> round(tolerance(1.0, (82430, 10000), 2.0**-23, "numpy") / tolerance(1.0, (82430, 10000), 2.0**-23, "press"))
        542
    """
    if rule not in RULES:
        raise ConfigurationError(f"unknown rule {rule!r}; known rules are {', '.join(RULES)}")
    T, M = shape
    if rule == "numpy":
        return max(T, M) * sigma_1 * eps
    return 0.5 * math.sqrt(T + M + 1) * sigma_1 * eps


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
    noise: float = 0.0,
    residual: float = 0.0,
) -> RankEstimate:
    """Count the singular values above roundoff.

    Args:
        singular_values: (min(T, M),) or fewer, in any order, not negative; missing ones count as zero.
        shape: (T, M) of the matrix.
        eps: relative roundoff of the least precise step that computed the matrix, a type's name or a number.
        rule: ``"press"``, ``"numpy"`` (see `tolerance`), or ``"gap"``, which takes the rank before the largest ratio of
            neighbours among all ranks within the margin of Press's tolerance.
        residual: Frobenius norm of the part outside the values (`Spectrum.residual`): each singular value lies
            between σ and √(σ² + ρ²), and the rank holds for all such values.
        floor: least tolerance; for a row-centred matrix, the `entry_roundoff` of the raw matrix.
        noise: expected spectral norm of a coarser rounding (`Rounding.noise`); no tolerance is below `NOISE_FACTOR`
            times it. If it exceeds a tenth of the tolerance, the noise may hide directions, and the interval of the
            rank extends from ``low`` to min(T, M).

    Raises:
        ConfigurationError: for an unknown rule or eps.
        MatrixError: for values that cannot be the singular values of a matrix of this shape.

    Example:
        >>> numerical_rank([3.0, 1.0, 1e-9], shape=(5, 3), eps="float32").value
        2
    """
    check_positive(T=shape[0], M=shape[1])
    values, size = descending(singular_values), min(shape)
    if values.size > size:
        raise MatrixError(f"a matrix of this shape has {size} singular values, not {values.size}")
    values = np.pad(values, (0, size - values.size))
    seen = np.size(singular_values) if residual else values.size
    sigma_1 = float(values[0])
    roundoff = precision(eps).value
    at_most = np.hypot(values, residual) if residual else values
    least = max(floor, NOISE_FACTOR * noise if math.isfinite(noise) else 0.0)
    limit = max(tolerance(float(at_most[0]), shape, roundoff, rule), least)
    low, value = count_above(values, limit * MARGIN), count_above(values, limit)
    high = count_above(at_most, limit / MARGIN)
    at_least = value < count_above(at_most, max(tolerance(sigma_1, shape, roundoff, rule), least))
    if NOISE_FACTOR * noise > limit / MARGIN:
        high = values.size
    if rule == "gap" and not at_least:
        value = _before_largest_gap(np.maximum(values, residual), low, high, least=limit / MARGIN)
    sigma_r = float(values[value - 1]) if value else None
    sigma_next = float(values[value]) if value < seen else None
    resolves = tolerance(1.0, shape, roundoff, rule) < 1 or not at_most[0]
    gap = sigma_r / sigma_next if sigma_r and sigma_next else math.inf
    return RankEstimate(
        value=value,
        low=low,
        high=high,
        determinate=low == high and resolves,
        tolerance=limit,
        sigma_1=sigma_1,
        sigma_r=sigma_r,
        sigma_next=sigma_next,
        at_least=at_least,
        gap=gap if math.isfinite(gap) else None,
    )


def count_above(values: NDArray[np.float64], limit: float) -> int:
    """Return how many values exceed a limit."""
    return int(np.count_nonzero(values > limit))


def _before_largest_gap(values: NDArray[np.float64], low: int, high: int, *, least: float) -> int:
    low = max(low, 1)
    if low >= high:
        return high
    # A matrix of full rank has no next value; the least value that roundoff could produce replaces it.
    following = np.append(values, least)[low : high + 1]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # 0 / 0 is not a gap
        ratios = values[low - 1 : high] / following
    return low + int(np.argmax(np.nan_to_num(ratios, posinf=np.inf)))
