"""One measured piece of work in a process of its own, so that its memory is its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BottleneckError


@dataclass(frozen=True)
class Measured:
    """What one piece of work took."""

    seconds: float
    memory_bytes: int
    """Largest resident size while it ran, above that of the process with its input."""
    result: Any
    """What it returned, as JSON."""


def in_its_own_process(module: str, *arguments: str) -> Measured:
    """Run ``python -m module arguments``, which prints what `report` makes, and return it.

    Raises:
        BottleneckError: when it fails.
    """
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BottleneckError(f"the benchmark {' '.join(arguments)} failed: {reason}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def report(work: Callable[[], Any]) -> None:
    """Run the work once and print its `Measured` as one line of JSON; Linux only."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew from here
    before = _status("VmRSS")
    started = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - started
    line = {"seconds": seconds, "memory_bytes": max(0, _status("VmHWM") - before), "result": result}
    print(json.dumps(line))  # noqa: T201 (this process exists to print it)


def machine() -> dict[str, Any]:
    """Return what a figure must be read beside."""
    import torch

    processor = platform.processor() or platform.machine()
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }


def _status(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])
