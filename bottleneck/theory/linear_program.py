"""Linear programs, solved by HiGHS from SciPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEASIBILITY = 1e-10
"""Tolerance of HiGHS on constraints, the smallest that it accepts."""


@dataclass(frozen=True, eq=False)
class Program:
    """The outcome of a linear program."""

    x: NDArray[np.float64] | None = None
    """The solution; ``None`` if there is none, time ran out, or numerical trouble occurred."""
    value: float = np.nan
    """The minimum."""
    multipliers: NDArray[np.float64] | None = None
    """Multipliers of the inequalities, at least 0."""
    equal_multipliers: NDArray[np.float64] | None = None
    """Multipliers of the equations: the derivative of the minimum in their right sides."""


def minimize(
    objective: NDArray[np.float64],
    *,
    rows: Any = None,
    limits: Any = None,
    equal_rows: Any = None,
    equal_to: Any = None,
    bounds: Any,
    seconds: float | None = None,
) -> Program:
    """Minimize objective·x with rows x ≤ limits, equal_rows x = equal_to and bounds, in at most ``seconds``."""
    options: dict[str, Any] = {
        "primal_feasibility_tolerance": FEASIBILITY,
        "dual_feasibility_tolerance": FEASIBILITY,
    }
    if seconds is not None:
        options["time_limit"] = seconds
    from scipy.optimize import linprog

    solve: Any = linprog
    solved = solve(objective, rows, limits, equal_rows, equal_to, bounds=bounds, method="highs", options=options)
    if solved.status != 0:
        return Program()
    multipliers = np.maximum(-solved.ineqlin.marginals, 0)
    return Program(solved.x, float(solved.fun), multipliers, solved.eqlin.marginals)
