"""The project's goals, judged by what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Goal = tuple[str, float, str, float]
"""What it is, what was measured (NaN: it was not), ``"<="`` or ``">="``, and the bound."""


def judged(goals: Iterable[Goal]) -> list[dict[str, Any]]:
    """Return the goals that were measured, each with its bound and whether it is met."""
    return [
        {"what": what, "measured": found, "asked": f"{sign} {bound:.3g}",
         "met": found >= bound if sign == ">=" else found <= bound}
        for what, found, sign, bound in goals if not math.isnan(found)
    ]  # fmt: skip
