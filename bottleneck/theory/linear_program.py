"""Linear programs, solved by HiGHS from SciPy, with a named outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Ending = Literal["optimal", "infeasible", "unbounded", "stopped"]
_ENDINGS: dict[int, Ending] = {0: "optimal", 2: "infeasible", 3: "unbounded"}
FEASIBILITY = 1e-10
"""Tolerance of HiGHS on constraints, the smallest that it accepts."""


@dataclass(frozen=True, eq=False)
class Program:
    """The outcome of a linear program."""

    ending: Ending
    """Outcome; ``"stopped"`` means that time ran out or numerical trouble occurred."""
    x: NDArray[np.float64] | None = None
    """The solution, if the outcome is optimal."""
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
    ending = _ENDINGS.get(solved.status, "stopped")
    if ending != "optimal":
        return Program(ending)
    multipliers = np.maximum(-solved.ineqlin.marginals, 0)
    return Program(ending, solved.x, float(solved.fun), multipliers, solved.eqlin.marginals)
