"""Pieces of work in processes of their own, so that the memory of each is its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..errors import BottleneckError

MEMORY = b"memory\n"
"""What a process is asked for other than its work."""


class Run(NamedTuple):
    """One run of a piece of work."""

    seconds: float
    result: Any
    """What it returned, as JSON."""


@contextmanager
def worker(module: str, *arguments: str) -> Iterator[Worker]:
    """Start ``python -m module arguments``, which calls `serve`, wait until it has its input, and end it at last.

    Raises:
        BottleneckError: when it fails.
    """
    command, pipe = [sys.executable, "-m", module, *arguments], subprocess.PIPE
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=errors) as process,
    ):
        try:
            started = Worker(process, errors, " ".join(arguments))
            started.answer()
            yield started
        finally:
            process.kill()


class Worker:
    """A process that does one piece of work each time it is asked to, and waits in between; see `worker`."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], what: str) -> None:
        self._process, self._errors, self._what = process, errors, what

    def run(self) -> Run:
        """Have the work done once; `BottleneckError` when it fails."""
        return Run(*self._ask(b"run\n"))

    def memory(self) -> int:
        """Return the most bytes it held at once, of the GPU where it used one, above those before its work."""
        return int(self._ask(MEMORY))

    def answer(self) -> Any:
        """Wait for what it says next; `BottleneckError` when it has nothing more to say."""
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        reason = said[-1] if said and code > 0 else f"its process ended with exit code {code}"
        raise BottleneckError(f"the benchmark {self._what} failed: {reason}")

    def _ask(self, question: bytes) -> Any:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and said why
            self._process.stdin.write(question)
        return self.answer()


def serve(work: Callable[[], Any], *, device: str = "cpu") -> None:
    """Do the work when asked on standard input, and tell its seconds and result; Linux only.

    Args:
        work: returns what JSON can hold; on a GPU, when all is done there.
        device: whose memory is told: the process's, or what torch took of the GPU.
    """
    # Whatever the work prints, by Python or not, is no answer.
    answers, sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8"), sys.stderr
    os.dup2(2, 1)
    memory = _device_memory(device) if device != "cpu" else _resident_memory()

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    answer("ready")
    for question in sys.stdin:
        if question.encode() == MEMORY:
            answer(memory())
            continue
        started = time.perf_counter()
        result = work()
        answer((time.perf_counter() - started, result))


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
    """Return a field of this process's ``/proc/self/status`` that is a size, in bytes; Linux only."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])
