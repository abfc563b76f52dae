"""Measurement of several cases in turn, each in its own process, and the goals for what is measured.

Other load on the machine then slows all cases alike, and the memory of each case is measured separately.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils import benchmark

from ..core.machine import machine, status
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..errors import BottleneckError

RUNS, SECONDS = 9, 24.0
"""Largest number of timed runs of each case, and the total seconds of the slowest case after which none begins."""

Work = Callable[[], Mapping[str, Any]]
"""A function that runs a case and returns what is reported beside its time. It can be pickled."""
Cases = Mapping[str, "partial[Work]"]
"""By name, functions that make a case's input and return its `Work`; their keyword arguments are reported."""
Rows = dict[str, dict[str, Any]]
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

    def measure(self, rows: Rows) -> float:
        """Return the value; NaN if it is unknown, a case was not measured, or is divided by 0."""
        if not {self.case, self.over or self.case} <= rows.keys() or rows[self.case][self.key] is None:
            return math.nan
        other = rows[self.over][self.over_key or self.key] if self.over else 1.0
        return float(rows[self.case][self.key]) / other / self.unit if other else math.nan


def report(rows: Rows, goals: Iterable[Goal] = (), *, device: str = "cpu", **about: Any) -> dict[str, Any]:
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
    return {**about, "cases": rows, "goals": checked, "version": __version__}


def in_turn(
    cases: Cases,
    *,
    device: str = "cpu",
    runs: int = RUNS,
    seconds: float = SECONDS,
    warm_up: bool = True,
    imports: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Rows:
    """Run all cases in turn, each in its own process; Linux only.

    Args:
        cases: the cases.
        device: device whose memory is measured: for ``"cpu"`` that of the process, else torch's memory on the GPU.
        runs: largest number of timed runs of each case.
        seconds: total seconds of the slowest case's runs after which no round begins.
        warm_up: whether each case has a first run that is not timed.
        imports: modules that cases import, besides torch and `softmax_bottleneck.bench`: all are imported only once, by
            a process from which those of the cases are forked.
        progress: progress display.

    Returns:
        For each case: ``case``, its settings; ``runs``, the seconds of each run, and their median ``seconds``;
        ``memory_bytes``, the largest memory during the runs, of the process above its size with the input, or of the
        GPU, or ``None`` if that is unknown; and what its work returns, with the median of a number over the runs.

    Raises:
        BottleneckError: when a case fails.
    """
    results: dict[str, list[Mapping[str, Any]]] = {name: [] for name in cases}
    times: dict[str, list[float]] = {name: [] for name in cases}
    multiprocessing.set_forkserver_preload(["torch", "softmax_bottleneck.bench", *imports])
    with ExitStack() as stack:
        workers = {name: stack.enter_context(closing(_Worker(name, make, device))) for name, make in cases.items()}
        for worker in workers.values() if warm_up else ():
            worker.ask("run")
        for number in range(1, runs + 1):
            for name, worker in workers.items():
                time_taken, result = worker.ask("run")
                times[name].append(time_taken)
                results[name].append(result)
                progress.line(f"{name}, run {number}: {time_taken:.3f} s")
            if max(map(sum, times.values())) >= seconds:
                break
        memory = {name: worker.ask("memory") for name, worker in workers.items()}
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


class _Worker:
    """A process that makes a case's input and runs the case on request."""

    def __init__(self, name: str, make: Callable[[], Work], device: str) -> None:
        context = multiprocessing.get_context("forkserver")
        self._name, (self._pipe, theirs) = name, context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, device))
        self._process.start()
        theirs.close()
        self._answer()

    def ask(self, question: str) -> Any:
        """Request ``"run"``, which returns seconds and result, or ``"memory"``, which returns bytes."""
        with suppress(BrokenPipeError):
            self._pipe.send(question)
        return self._answer()

    def close(self) -> None:
        self._process.kill()
        self._process.join()

    def _answer(self) -> Any:
        answer = None
        with suppress(EOFError, ConnectionResetError):
            answer = self._pipe.recv()
            if not isinstance(answer, str):
                return answer
        self._process.join()
        reason = answer or f"its process ended with exit code {self._process.exitcode}"
        raise BottleneckError(f"the benchmark {self._name!r} failed: {reason}")


def _serve(pipe: Connection, make: Callable[[], Work], device: str) -> None:
    """Answer requests until the other end of the pipe is closed; a text as an answer is an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)  # standard output holds the report alone
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        work = make()
        memory = _resident_memory() if device == "cpu" else _device_memory(device)
        pipe.send(None)
        while True:
            if pipe.recv() == "memory":
                pipe.send(memory())
                continue
            started = benchmark.timer()  # it waits for the kernels of a GPU
            result = work()
            pipe.send((benchmark.timer() - started, result))
    except EOFError:
        return
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


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
