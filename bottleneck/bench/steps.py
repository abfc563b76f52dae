"""Training steps that are timed, and goals that are judged."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .process import Measured

if TYPE_CHECKING:
    from torch import Tensor

REPEATS, SECONDS = 7, 20.0
"""Steps timed after the first one, and the time after which no other is begun."""

Goal = tuple[str, float, str, float]
"""What it is, what was measured (NaN: it was not), ``"<="`` or ``">="``, and the bound."""


def repeat(step: Callable[[], Tensor], device: str) -> dict[str, Any]:
    """Take a step several times.

    Returns:
        ``seconds`` of each but the first, the last ``loss``, and on a GPU ``device_bytes``, the most that were taken
        there at once above those taken before.
    """
    import torch

    cuda = device != "cpu"
    before = torch.cuda.memory_allocated() if cuda else 0
    loss, began = step(), time.perf_counter()
    seconds: list[float] = []
    while not seconds or (len(seconds) < REPEATS and time.perf_counter() - began < SECONDS):
        started = time.perf_counter()
        loss = step()
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    memory = {"device_bytes": torch.cuda.max_memory_allocated() - before} if cuda else {}
    return {"seconds": seconds, "loss": float(loss), **memory}


def seconds_of(measured: Measured) -> float:
    """Return the median of the steps' times."""
    return float(statistics.median(measured.result["seconds"]))


def memory_of(measured: Measured) -> int:
    """Return the bytes above those before the steps: the device's own where that is not the CPU."""
    return int(measured.result.get("device_bytes", measured.memory_bytes))


def judged(goals: Iterable[Goal]) -> list[dict[str, Any]]:
    """Return the goals that were measured, each with its bound and whether it is met."""
    return [
        {"what": what, "measured": found, "asked": f"{sign} {bound:.3g}",
         "met": found >= bound if sign == ">=" else found <= bound}
        for what, found, sign, bound in goals if not math.isnan(found)
    ]  # fmt: skip
