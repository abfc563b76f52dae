"""Cases that are compared with each other, each in a process of its own, run in turn.

A machine that is slow for a while is then slow for all cases, and the memory of each case is its own.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..errors import BottleneckError
from ..progress import SILENT, Progress

RUNS, SECONDS = 9, 24.0
"""Timed runs of each case at most, and the time that the slowest may take before the last round."""

Work = Callable[[], Any]
"""A case's work; what it returns can be pickled, and on a GPU all of it is done when it returns."""


@dataclass(frozen=True)
class Measured:
    """What one case took."""

    runs: list[float]
    """Seconds of each."""
    memory_bytes: int
    """Largest resident size while they ran, above that of the process with its input; of the GPU where it used one."""
    results: list[Any]
    """What each returned."""

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

    def row(self) -> dict[str, Any]:
        """Return it for work whose result is a loss."""
        values = self.to_dict()
        del values["results"]
        return {**values, **self.result}


Goal = tuple[str, float, str, float]
"""What it is, what was measured (NaN: it was not), ``"<="`` or ``">="``, and the bound."""


def judged(goals: Iterable[Goal]) -> list[dict[str, Any]]:
    """Return the goals that were measured, each with its bound and whether it is met."""
    return [
        {
            "what": what,
            "measured": found,
            "asked": f"{sign} {bound:.3g}",
            "met": found >= bound if sign == ">=" else found <= bound,
        }
        for what, found, sign, bound in goals
        if not math.isnan(found)
    ]


def in_turn(
    cases: Mapping[str, Callable[[], Work]],
    *,
    device: str = "cpu",
    runs: int = RUNS,
    seconds: float = SECONDS,
    warm_up: bool = True,
    progress: Progress = SILENT,
) -> dict[str, Measured]:
    """Run each case in a process of its own, one run of each after one of every other; Linux only.

    Args:
        cases: by name, what makes a case's input and returns its work, called in the process.
        device: whose memory is measured: the process's for ``"cpu"``, else what torch took of the GPU.
        runs: timed runs of each case at most.
        seconds: the time of the slowest case's runs after which no round is begun.
        warm_up: whether a first run of each is not timed.
        progress: where to report.

    Raises:
        BottleneckError: when a case fails.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    results: dict[str, list[Any]] = {name: [] for name in cases}
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
    """A process that makes a case's input and does its work each time it is asked to."""

    def __init__(self, name: str, make: Callable[[], Work], device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._name, (self._pipe, theirs) = name, context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, device))
        self._process.start()
        theirs.close()
        self._answer()

    def ask(self, question: str) -> Any:
        """Have it ``"run"``, for its seconds and result, or tell its ``"memory"`` in bytes."""
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
    """Answer until the other end of the pipe is closed; a text says why the case fails."""
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
    """Return what tells the largest resident size from now on above the present one."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew from here
    before = status("VmRSS")
    return lambda: max(0, status("VmHWM") - before)


def _device_memory(device: str) -> Callable[[], int]:
    import torch

    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return lambda: torch.cuda.max_memory_allocated(device) - before


def status(field: str) -> int:
    """Return a size that Linux reports of this process, in bytes: ``VmHWM``, ``RssAnon``."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])
