"""Linear programs, solved by HiGHS from SciPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .inputs import Floats

FEASIBILITY = 1e-10
"""Tolerance of HiGHS on constraints, the smallest that it accepts."""


class Optimum(NamedTuple):
    """The solution of a linear program."""

    x: Floats
    value: float
    """The minimum."""
    multipliers: Floats
    """Multipliers of the inequalities, at least 0."""
    equal_multipliers: Floats
    """Multipliers of the equations: the derivative of the minimum in their right sides."""


def minimize(
    objective: Floats,
    *,
    rows: Any = None,
    limits: Any = None,
    equal_rows: Any = None,
    equal_to: Any = None,
    bounds: Any,
    seconds: float | None = None,
) -> Optimum | None:
    """Return the minimum of objective·x with rows x ≤ limits, equal_rows x = equal_to and bounds.

    It is ``None`` if there is none, ``seconds`` ran out, or numerical trouble occurred.
    """
    from scipy.optimize import linprog

    options = {"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY}
    options |= {} if seconds is None else {"time_limit": seconds}
    solve: Any = linprog
    solved = solve(objective, rows, limits, equal_rows, equal_to, bounds=bounds, method="highs", options=options)
    if solved.status != 0:
        return None
    return Optimum(solved.x, float(solved.fun), np.maximum(-solved.ineqlin.marginals, 0), solved.eqlin.marginals)
