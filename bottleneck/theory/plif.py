"""Approximation of an increasing function by a piecewise linear increasing one (Ganea et al. 2019, theorem 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.checks import check_above_zero, check_positive, typed
from ..errors import ConfigurationError, MatrixError
from .inputs import EPS, Floats

SAMPLES = 1 << 16
"""Points at which the error is evaluated, at least `LEAST` in each piece."""
LEAST = 17
WORST = 8
"""Number of pieces, those of the largest errors, in which the error is refined."""


@dataclass(frozen=True, eq=False)
class PLIFApproximation:
    """A piecewise linear function through h at P + 1 equally spaced knots."""

    knots: Floats
    """l_0 … l_P, (P + 1,): −T … T."""
    values: Floats
    """h(l_0) … h(l_P)."""
    slopes: Floats
    """s_0 … s_{P−1}, all above 0: softplus of the parameters v of `heads.PLIF`."""
    error: float
    """max |f − h| over [−T, T], evaluated at 2¹⁶ points or more and refined in the worst pieces."""
    bound: float
    """4RT/P, the upper bound on the error of Ganea et al. 2019, eq. 27."""
    sharp_bound: float
    """RT/(2P), a smaller upper bound on the error; see `plif_approximation`."""
    R: float
    """The bound on h' in both bounds."""
    assumed: bool
    """Whether R was not given and is the largest observed slope; the bounds are then estimates."""

    def __call__(self, x: Any) -> Floats:
        """Return f(x) for x in [−T, T]."""
        return np.interp(x, self.knots, self.values)


@typed
def plif_approximation(h: Callable[[Floats], Any], T: float, P: int, *, R: float | None = None) -> PLIFApproximation:
    r"""Interpolate an increasing function linearly between the P + 1 equally spaced knots of [−T, T].

    For increasing h with h' ≤ R the error is at most 4RT/P (Ganea et al. 2019, theorem 7 and eq. 27). Since h' is not
    negative either, the error is at most RT/(2P): within a piece of width Δ = 2T/P and slope s, h at the fraction u of
    the width exceeds its value at the left end by at most :math:`Δ \min(Ru, s)`, so

    .. math:: h - f ≤ Δ \max_u \min(Ru, s) - su = Δ s (1 - s/R) ≤ ΔR/4

    and f − h likewise from the right end. A staircase of slopes 0 and R attains it.

    Args:
        h: maps an array of numbers to an array of its values; strictly increasing and differentiable.
        T: half the interval's width.
        P: number of pieces.
        R: bound on h'; by default the largest slope between neighbouring sample points.

    Raises:
        ConfigurationError: for T, P or R that is not positive, or an R that h exceeds.
        MatrixError: for values that are not finite or do not increase.

    Example:
        >>> found = plif_approximation(np.sinh, 2.0, 100, R=np.cosh(2.0))
        >>> found.error < found.sharp_bound < found.bound
        True
    """
    check_positive(P=P)
    check_above_zero(T=T, R=R)
    from scipy.optimize import minimize_scalar

    knots = np.linspace(-T, T, P + 1)
    each = max(LEAST, -(-SAMPLES // P)) | 1
    points = knots[:-1, None] + np.linspace(0, 1, each)[None] * (2 * T / P)
    sampled = np.asarray(h(points.ravel()), dtype=np.float64).reshape(points.shape)
    values = np.asarray(h(knots), dtype=np.float64)
    if values.shape != knots.shape or not (np.isfinite(sampled).all() and np.isfinite(values).all()):
        raise MatrixError("h must map an array of numbers to as many finite ones, everywhere in [−T, T]")
    if not (np.diff(values) > 0).all() or (np.diff(sampled, axis=1) < 0).any():
        raise MatrixError("h must increase on [−T, T]: theorem 7 is about increasing functions")
    steepest = float((np.diff(sampled, axis=1) / (2 * T / P / (each - 1))).max())
    roundoff = 4 * EPS * abs(values).max() * (each - 1) * P / T
    if R is not None and steepest > R + roundoff:
        raise ConfigurationError(f"h' reaches {steepest:.6g} and is not bounded by R = {R:.6g}: give a larger R")

    def distance(x: Any) -> Any:
        return abs(np.interp(x, knots, values) - np.asarray(h(np.atleast_1d(x))))

    errors = abs(np.interp(points, knots, values) - sampled)
    error = float(errors.max())
    for piece in np.argsort(-errors.max(1))[:WORST]:
        place = int(errors[piece].argmax())
        around = points[piece, max(place - 1, 0)], points[piece, min(place + 1, each - 1)]
        refined = minimize_scalar(lambda x: -float(distance(x)[0]), bounds=around, options={"xatol": 1e-13 * T})
        error = max(error, -float(refined.fun))
    bound = float(steepest if R is None else R)
    slopes = np.diff(values) / (2 * T / P)
    return PLIFApproximation(knots, values, slopes, error, 4 * bound * T / P, bound * T / (2 * P), bound, R is None)
