"""Linear programs by SciPy's HiGHS, whose every ending has a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Ending = Literal["optimal", "infeasible", "unbounded", "stopped"]
_ENDINGS: dict[int, Ending] = {0: "optimal", 2: "infeasible", 3: "unbounded"}
FEASIBILITY = 1e-10
"""By how much HiGHS may miss a constraint; the least that it takes."""


@dataclass(frozen=True, eq=False)
class Program:
    """How a linear program ended."""

    ending: Ending
    """``"stopped"``: out of time, or in numerical trouble; nothing is known."""
    x: NDArray[np.float64] | None = None
    """The solution, where it is optimal."""
    value: float = np.nan
    multipliers: NDArray[np.float64] | None = None
    """Of the inequalities, not negative."""
    equal_multipliers: NDArray[np.float64] | None = None
    """Of the equations: the derivative of the minimum in their right sides."""


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
    solve: Any = linprog
    found = solve(objective, rows, limits, equal_rows, equal_to, bounds=bounds, method="highs", options=options)
    ending = _ENDINGS.get(found.status, "stopped")
    if ending != "optimal":
        return Program(ending)
    return Program(ending, found.x, float(found.fun), np.maximum(-found.ineqlin.marginals, 0), found.eqlin.marginals)
