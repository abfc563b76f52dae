"""Streams, signals and limits of real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RANK = [sys.executable, "-m", "softmax_bottleneck", "rank", "m.npy"]
SEND = "os.kill(os.getpid(), signal.SIGINT)"
EARLY = f"""
import os, signal, sys
import softmax_bottleneck.__main__ as command

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "rich_click":
            {SEND}

sys.meta_path.insert(0, Interrupt())
command.run()
"""
"""Ctrl-C comes while packages are loaded."""
TWICE = f"""
import os, signal, sys, threading, time
import softmax_bottleneck.__main__ as command
import softmax_bottleneck.measure as measure

def rank(*arguments, **options):
    try:
        {SEND}
        time.sleep(60)
    finally:
        {SEND}  # while the work is left
        {SEND}

measure.rank = rank
sys.argv = ["bottleneck", "rank", "m.npy"]
command.run()
"""
LOST = """
import os, signal, sys, time, weakref
import softmax_bottleneck.__main__ as command
import softmax_bottleneck.measure as measure

class Part:
    pass

class Closing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)

def rank(*arguments, **options):
    part = Part()
    reference = weakref.ref(part, lambda _: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(0.1)))
    del part
    Closing()
    time.sleep(60)

measure.rank = rank
sys.argv = ["bottleneck", "rank", "m.npy"]
command.run()
"""
"""SIGTERM comes inside the callback of a weak reference, and comes again inside a ``__del__``."""
COMPUTING = f"""
import os, signal, sys, threading, time
import torch
import softmax_bottleneck.__main__ as command
import softmax_bottleneck.measure as measure

def rank(*arguments, **options):
    threading.Timer(0.5, lambda: {SEND}).start()
    torch.linalg.svdvals(torch.randn(5000, 5000, dtype=torch.float64))

measure.rank = rank
sys.argv = ["bottleneck", "rank", "m.npy"]
command.run()
"""
"""A decomposition of minutes, which sees no signal."""


@pytest.fixture(autouse=True)
def folder(log_probs: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a matrix of 24 contexts."""
    monkeypatch.chdir(tmp_path)
    np.save("m.npy", log_probs(24, 12))
    return tmp_path


def _run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]


def _shell(line: str) -> subprocess.CompletedProcess[str]:
    return _run(["sh", "-c", line, "sh", *RANK])


def test_standard_error_is_closed_or_full() -> None:
    for number, redirection in enumerate(("2>/dev/full", "<&- 2>&-")):
        done = _shell(f'"$@" --json {number}.json {redirection}')
        assert done.returncode == 0
        assert json.loads(Path(f"{number}.json").read_bytes())["contexts"] == 24


def test_standard_output_is_full() -> None:
    done = _shell('"$@" >/dev/full')
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in done.stderr


def test_little_memory() -> None:
    done = _shell('ulimit -v 400000; exec "$@"')
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("program", "code"),
    [(EARLY, 130), (TWICE, 130), (COMPUTING, 130), (LOST, 143)],
    ids=["early", "twice", "computing", "lost"],
)
def test_an_interruption(program: str, code: int) -> None:
    done = _run([sys.executable, "-c", program])
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "interrupted\n")


def test_an_interruption_of_a_process_group(folder: Path) -> None:
    """A terminal sends Ctrl-C to the workers as well."""
    line = "synthetic --vocab 50,60 --dim 20 --models softmax --contexts 2000 --cycles 9 --processes 2 --out grid"
    with subprocess.Popen(
        [sys.executable, "-m", "softmax_bottleneck", *line.split()],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        cells, since = folder / "grid" / "cells", time.monotonic()
        while not cells.exists() and time.monotonic() - since < 90:
            time.sleep(0.1)
        time.sleep(1.5)  # the workers start
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=90)
    assert process.returncode == 130
    assert re.fullmatch(
        r"interrupted; \d of 4 cells are kept in grid/cells, and the same command fits the others\n", error
    )
