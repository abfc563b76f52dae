"""Measurement of several cases in turn, each in its own process.

Other load on the machine then slows all cases alike, and the memory of each case is measured separately.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..core.machine import status
from ..core.progress import SILENT, Progress
from ..errors import BottleneckError

RUNS, SECONDS = 9, 24.0
"""Largest number of timed runs of each case, and the total seconds of the slowest case after which none begins."""

Work = Callable[[], Any]
"""A function that runs a case. Its result can be pickled, and on a GPU it returns after all kernels have finished."""


@dataclass(frozen=True)
class Measured:
    """Time, memory and results of one case."""

    runs: list[float]
    """Seconds of each run."""
    memory_bytes: int
    """Largest memory during the runs, of the process above its size with the input, or of the GPU if it is used."""
    results: list[Any]
    """Result of each run."""

    @property
    def seconds(self) -> float:
        """Median of the runs."""
        return statistics.median(self.runs)

    @property
    def result(self) -> Any:
        """Result of the last run."""
        return self.results[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return all values, ready for JSON."""
        return {"seconds": self.seconds, **asdict(self)}

    def row(self) -> dict[str, Any]:
        """Return the values of a case whose result is a loss."""
        values = self.to_dict()
        del values["results"]
        return {**values, **self.result}


Goal = tuple[str, float, str, float]
"""Description, measured value (NaN if there is none), ``"<="`` or ``">="``, and bound."""


def check_goals(goals: Iterable[Goal]) -> list[dict[str, Any]]:
    """Return the goals that were measured, each with its bound and whether it is met."""
    return [
        {
            "what": what,
            "measured": measured,
            "asked": f"{sign} {bound:.3g}",
            "met": measured >= bound if sign == ">=" else measured <= bound,
        }
        for what, measured, sign, bound in goals
        if not math.isnan(measured)
    ]


def ratio(rows: Mapping[str, Mapping[str, Any]], one: str, other: str, key: str = "seconds") -> float:
    """Return a value of one case over that of another; NaN if one was not measured or the other is 0."""
    if one not in rows or other not in rows or not rows[other][key]:
        return math.nan
    return float(rows[one][key] / rows[other][key])


def run_cases(
    cases: Mapping[str, Any], work: Callable[[Any], Work], *, device: str, shrink: int, **settings: Any
) -> dict[str, dict[str, Any]]:
    """Run cases in turn, and return settings, seconds, memory and loss of each, ready for JSON.

    Args:
        cases: dataclasses by name.
        work: makes a case's input and returns its `Work`, whose result is a dictionary with the loss.
        device: see `in_turn`.
        shrink: divisor of the cases' sizes; only cases of full size run several times.
        settings: other arguments of `in_turn`.
    """
    settings = {"runs": RUNS if shrink == 1 else 1, **settings}
    works = {name: partial(work, case) for name, case in cases.items()}
    measured = in_turn(works, device=device, **settings)
    return {name: {"case": asdict(case), **measured[name].row()} for name, case in cases.items()}


def in_turn(
    cases: Mapping[str, Callable[[], Work]],
    *,
    device: str = "cpu",
    runs: int = RUNS,
    seconds: float = SECONDS,
    warm_up: bool = True,
    imports: Sequence[str] = (),
    progress: Progress = SILENT,
) -> dict[str, Measured]:
    """Run all cases in turn, each in its own process; Linux only.

    Args:
        cases: by name, functions that make a case's input and return its `Work`; they are called in the case's process.
        device: device whose memory is measured: for ``"cpu"`` that of the process, else torch's memory on the GPU.
        runs: largest number of timed runs of each case.
        seconds: total seconds of the slowest case's runs after which no round begins.
        warm_up: whether each case has a first run that is not timed.
        imports: modules that cases import, besides torch and `softmax_bottleneck.bench`: all are imported only once, by
            a process from which those of the cases are forked.
        progress: progress display.

    Raises:
        BottleneckError: when a case fails.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    results: dict[str, list[Any]] = {name: [] for name in cases}
    multiprocessing.set_forkserver_preload(["torch", "softmax_bottleneck.bench", *imports])
    with ExitStack() as stack:
        workers = {name: stack.enter_context(closing(_Worker(name, make, device))) for name, make in cases.items()}
        if warm_up:
            for worker in workers.values():
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
    return {name: Measured(times[name], memory[name], results[name]) for name in cases}


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
            started = time.perf_counter()
            result = work()
            pipe.send((time.perf_counter() - started, result))
    except EOFError:
        return
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def _resident_memory() -> Callable[[], int]:
    """Return a function that returns the largest increase of the resident size from now on."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew from here
    before = status("VmRSS")
    return lambda: max(0, status("VmHWM") - before)


def _device_memory(device: str) -> Callable[[], int]:
    import torch

    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return lambda: torch.cuda.max_memory_allocated(device) - before
