"""Measurement of several cases in turn, each in its own process, and the goals for what is measured.

Other load on the machine then slows all cases alike, and the memory of each case is measured separately.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils import benchmark

from ..core.machine import machine, status
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..core.workers import safe_children
from ..errors import BottleneckError

RUNS, SECONDS = 9, 24.0
"""Largest number of timed runs of each case, and the total seconds of the slowest case after which none begins."""

Work = Callable[[], Mapping[str, Any]]
"""A function that runs a case and returns what is reported beside its time. It can be pickled."""
Cases = Mapping[str, "partial[Work]"]
"""By name, functions that make a case's input and return its `Work`; their keyword arguments are reported."""
Timings = dict[str, dict[str, Any]]
"""The measurements of cases by name."""


class Goal(NamedTuple):
    """A bound for a value of a case, or for its ratio to a value of the case beside it."""

    what: str
    """Description."""
    case: str
    sign: str
    """``"<="`` or ``">="``."""
    bound: float
    over: str = ""
    """The case beside it; empty for the value alone."""
    key: str = "seconds"
    over_key: str = ""
    """Key of the other case's value, if it is another one."""
    unit: float = 1.0
    """Divisor of the value or of the ratio."""

    def measure(self, rows: Timings) -> float:
        """Return the value; NaN if it is unknown, a case was not measured, or is divided by 0."""
        if not {self.case, self.over or self.case} <= rows.keys() or rows[self.case][self.key] is None:
            return math.nan
        other = rows[self.over][self.over_key or self.key] if self.over else 1.0
        return float(rows[self.case][self.key]) / other / self.unit if other else math.nan


def report(rows: Timings, goals: Iterable[Goal] = (), *, device: str = "cpu", **about: Any) -> dict[str, Any]:
    """Return the result of a benchmark, ready for JSON.

    Args:
        rows: from `in_turn`.
        goals: the project's goals; those whose cases were not measured are left out.
        device: device of the measurements.
        about: settings, and further results.
    """
    checked = [
        {
            "what": goal.what,
            "measured": value,
            "bound": f"{goal.sign} {goal.bound:.3g}",
            "met": value >= goal.bound if goal.sign == ">=" else value <= goal.bound,
        }
        for goal in goals
        if not math.isnan(value := goal.measure(rows))
    ]
    about = {"machine": machine(device), "device": device, **about}
    return {"kind": "bench", **about, "cases": rows, "goals": checked, "version": __version__}


def in_turn(
    cases: Cases,
    *,
    device: str = "cpu",
    runs: int = RUNS,
    seconds: float = SECONDS,
    warm_up: bool = True,
    imports: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Timings:
    """Run all cases in turn, each in its own process; Linux only.

    Args:
        cases: the cases.
        device: device whose memory is measured: for ``"cpu"`` that of the process, else torch's memory on the GPU.
        runs: largest number of timed runs of each case.
        seconds: total seconds of the slowest case's runs after which no round begins.
        warm_up: whether each case has a first run that is not timed.
        imports: modules that cases import, besides torch and `softmax_bottleneck.bench`. On the CPU all are imported
            only once, by a process from which those of the cases are forked. A fork cannot use CUDA once torch has
            looked for GPUs, as its import does, so on other devices each process starts afresh.
        progress: progress display.

    Returns:
        For each case: ``case``, its settings; ``runs``, the seconds of each run, and their median ``seconds``;
        ``memory_bytes``, the largest memory during the runs, of the process above its size with the input, or of the
        GPU, or ``None`` if that is unknown; and what its work returns, with the median of a number over the runs.

    Raises:
        BottleneckError: when a case fails.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    results: dict[str, list[Mapping[str, Any]]] = {name: [] for name in cases}
    multiprocessing.set_forkserver_preload(["torch", "softmax_bottleneck.bench", *imports])
    context = multiprocessing.get_context("forkserver" if device == "cpu" else "spawn")
    others = multiprocessing.active_children()
    with safe_children():  # the queues start a process too
        workers = {name: ProcessPoolExecutor(1, context, initializer=_begin) for name in cases}

    def ask(name: str, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return workers[name].submit(question, *arguments).result()
        except Exception as error:
            raise BottleneckError(f"the benchmark {name!r} failed: {type(error).__name__}: {error}") from error

    try:
        with safe_children():
            for name, make in cases.items():
                ask(name, _make, make, device)
        for name in cases if warm_up else ():
            ask(name, _run)
        for number in range(1, runs + 1):
            for name in cases:
                seconds_taken, result = ask(name, _run)
                times[name].append(seconds_taken)
                results[name].append(result)
                progress.line(f"{name}, run {number}: {seconds_taken:.3f} s")
            if max(map(sum, times.values())) >= seconds:
                break
        memory = {name: ask(name, _memory) for name in cases}
    finally:
        for child in multiprocessing.active_children():
            if child not in others:  # a case that still runs when another failed, or after an interrupt
                child.kill()
        for worker in workers.values():
            worker.shutdown()
    return {
        name: {
            "case": make.keywords,
            "seconds": statistics.median(times[name]),
            "runs": times[name],
            "memory_bytes": memory[name],
            **_medians(results[name]),
        }
        for name, make in cases.items()
    }


def _medians(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of the last run, with the median of a number over all runs."""
    return {
        key: statistics.median(result[key] for result in results) if isinstance(value, float) else value
        for key, value in results[-1].items()
    }


_work: Work
_memory_of_work: Callable[[], int | None]
"""In the process of a case: its work, and what returns the memory of that."""


def _begin() -> None:
    """End this process with the one that started it; keep standard output and error for the report."""
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _make(make: Callable[[], Work], device: str) -> None:
    global _work, _memory_of_work
    _work = make()
    _memory_of_work = _resident_memory() if device == "cpu" else _device_memory(device)


def _run() -> tuple[float, Mapping[str, Any]]:
    started = benchmark.timer()  # it waits for the kernels of a GPU
    result = _work()
    return benchmark.timer() - started, result


def _memory() -> int | None:
    return _memory_of_work()


def _resident_memory() -> Callable[[], int]:
    """Return a function that returns the largest increase of the resident size from now on."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew from here
    before = status("VmRSS")
    return lambda: max(0, status("VmHWM") - before)


def _device_memory(device: str) -> Callable[[], int | None]:
    from ..core.devices import ask

    before = ask(device, "memory_allocated", device)
    ask(device, "reset_peak_memory_stats", device)
    return lambda: None if before is None else ask(device, "max_memory_allocated", device) - before
