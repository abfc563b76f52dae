"""Dump a matrix again and again, killed at every instant that leaves another state on disk.

Run by test_store.py in a process of its own: ``python dump_driver.py MATRIX.npy FOLDER``; with ``HEAD.npy`` after it,
the matrix holds hidden states, and they are dumped with their output layer. Each dump is a child that is
forked before any thread exists and dies of SIGKILL; its resumption is another. ``FOLDER/whole.zarr`` is never
interrupted; ``FOLDER/*`` are.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from softmax_bottleneck.language_models import source as base
from softmax_bottleneck.measure import dumping_states
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import open_source

matrix, folder = Path(sys.argv[1]), Path(sys.argv[2])
head = sys.argv[3] if len(sys.argv) > 3 else None
base.BLOCK_BYTES = 4 * 8 * 5  # four rows of five float64: the matrix has several chunks
dumping_states.FILE_BYTES = 4 * 4 * 5  # four hidden states of five float32 in a file
replace = Path.replace


def die_at(number: int) -> None:
    """Die before the n-th file is put in its place: Zarr writes aside, then renames."""
    count = 0

    def counted(self: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    Path.replace = counted  # type: ignore[method-assign, assignment]


def run(out: Path, number: int = 0) -> bool:
    """Dump in a child; return whether it lived."""
    child = os.fork()
    if child == 0:
        if number:
            die_at(number)
        dump(open_source(matrix, head=head), out, states=head is not None)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert status == 0, f"{out}: the dump ended with {status}"
    return True


assert run(folder / "whole.zarr")
number = 1
while not run(out := folder / f"rename-{number}.zarr", number):
    assert run(out)
    number += 1
# Killed over and over, each time at the first file, then at the second: what a machine that keeps failing does.
attempts = 0
while not run(folder / "again.zarr", attempts % 2 + 1):
    attempts += 1
sys.stdout.write(f"{number - 1} {attempts}")
