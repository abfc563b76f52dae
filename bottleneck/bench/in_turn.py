"""Cases that are compared with each other, run in turn: a machine that is slow for a while is so for all of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from ..progress import SILENT, Progress
from .process import Run, worker

RUNS, SECONDS = 9, 24.0
"""Timed runs of each case at most, and the time that the slowest may take before the last round."""


@dataclass(frozen=True)
class Measured:
    """What one case took."""

    runs: list[float]
    """Seconds of each."""
    memory_bytes: int
    """Largest resident size while they ran, above that of the process with its input; of the GPU where it used one."""
    results: list[Any]
    """What each returned, as JSON."""

    @property
    def seconds(self) -> float:
        """The median run's."""
        return statistics.median(self.runs)

    @property
    def result(self) -> Any:
        """What the last run returned."""
        return self.results[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, as JSON."""
        return {"seconds": self.seconds, **asdict(self)}


def in_turn(
    module: str,
    cases: Mapping[str, Sequence[str]],
    *,
    runs: int = RUNS,
    seconds: float = SECONDS,
    warm_up: bool = True,
    progress: Progress = SILENT,
) -> dict[str, Measured]:
    """Run each case in a process of its own, all processes at hand, one run of each after one of every other.

    Args:
        module: calls `process.serve`.
        cases: its arguments, by name.
        runs: timed runs of each case at most.
        seconds: the time of the slowest case's runs after which no round is begun.
        warm_up: whether a first run of each is not timed.
        progress: where to report.

    Returns:
        by name, in the cases' order.

    Raises:
        BottleneckError: when a case fails.
    """
    done: dict[str, list[Run]] = {name: [] for name in cases}
    with ExitStack() as stack:
        workers = {name: stack.enter_context(worker(module, *arguments)) for name, arguments in cases.items()}
        if warm_up:
            for one in workers.values():
                one.run()
        for number in range(1, runs + 1):
            for name, one in workers.items():
                done[name].append(one.run())
                progress.line(f"{name}, run {number}: {done[name][-1].seconds:.3f} s")
            if max(sum(run.seconds for run in of) for of in done.values()) >= seconds:
                break
        memory = {name: one.memory() for name, one in workers.items()}
    return {
        name: Measured([run.seconds for run in of], memory[name], [run.result for run in of])
        for name, of in done.items()
    }
