"""Training steps that are timed, and goals that are judged."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ..progress import SILENT, Progress
from .process import Measured, in_its_own_process

if TYPE_CHECKING:
    from torch import Tensor

ROUNDS = 3
"""Processes of each case, each after one of every other: a machine that is slow for a while is so for all of them."""
REPEATS, SECONDS = 3, 8.0
"""Steps that a process times after the first one, and the time after which no other is begun."""

Goal = tuple[str, float, str, float]
"""What it is, what was measured (NaN: it was not), ``"<="`` or ``">="``, and the bound."""


def in_turn(
    module: str, cases: Mapping[str, Any], *, quickly: bool = False, progress: Progress = SILENT
) -> dict[str, Measured]:
    """Measure each case in processes of its own, in `ROUNDS` rounds.

    Args:
        module: takes a case as JSON and prints the `Measured` of `repeat`.
        cases: dataclasses, by name.
        quickly: one round will do.
        progress: where to report.

    Returns:
        by name: all rounds' steps in ``seconds``, and the most memory of any.

    Raises:
        BottleneckError: when a case fails.
    """
    rounds: dict[str, list[Measured]] = {name: [] for name in cases}
    for number in range(1 if quickly else ROUNDS):
        for name, case in cases.items():
            measured = in_its_own_process(module, json.dumps(asdict(case)))
            rounds[name].append(measured)
            mebibytes = memory_of(measured) / 2**20
            progress.line(f"round {number + 1}, {name}: {seconds_of(measured):.3f} s, {mebibytes:,.0f} MiB")
    return {name: _together(runs) for name, runs in rounds.items()}


def _together(runs: Sequence[Measured]) -> Measured:
    most = max(runs, key=memory_of)
    return replace(most, result={**most.result, "seconds": [one for run in runs for one in run.result["seconds"]]})


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
