"""Dump a matrix again and again, killed at every instant that leaves another state on disk.

Run by test_store.py in a process of its own: ``python dump_driver.py MATRIX.npy FOLDER``. Each dump is a child
that is forked before any thread exists and dies of SIGKILL; its resumption is another. ``FOLDER/whole.zarr`` is
never interrupted; ``FOLDER/*`` are.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from softmax_bottleneck.core.files import json_lines
from softmax_bottleneck.language_models import source as base
from softmax_bottleneck.measure import dump
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.sources import store_writing as store

matrix, folder = Path(sys.argv[1]), Path(sys.argv[2])
base.BLOCK_BYTES = 4 * 8 * 5  # four rows of five float64: the matrix has several chunks
replace, append = Path.replace, store._append


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_rename(number: int, *, before: bool) -> Callable[[], None]:
    """Die at the n-th file that is put in its place: Zarr and `write_bytes` both write aside, then rename."""

    def prepare() -> None:
        count = 0

        def counted(self: Path, target: Path) -> Path:
            nonlocal count
            count += 1
            if count == number and before:
                die()
            result = replace(self, target)
            if count == number:
                die()
            return result

        Path.replace = counted  # type: ignore[method-assign, assignment]

    return prepare


def in_manifest_line(number: int, share: float) -> Callable[[], None]:
    """Die with only a part of the n-th line written."""

    def prepare() -> None:
        count = 0

        def torn(path: Path, chunk: store.Chunk) -> None:
            nonlocal count
            count += 1
            if count < number:
                append(path, chunk)
                return
            line = json_lines([asdict(chunk)])
            with (path / store.MANIFEST).open("ab") as file:
                file.write(line[: int(len(line) * share)])
            die()

        store._append = torn

    return prepare


def run(out: Path, prepare: Callable[[], None] = lambda: None) -> bool:
    """Dump in a child; return whether it lived."""
    child = os.fork()
    if child == 0:
        prepare()
        dump(open_source(matrix), out)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert status == 0, f"{out}: the dump ended with {status}"
    return True


assert run(folder / "whole.zarr")
renames = 0
for before in (True, False):
    number = 1
    while not run(out := folder / f"rename-{number}-{before}.zarr", at_rename(number, before=before)):
        assert run(out)
        number += 1
    renames = number - 1
for number in (1, 3):
    for share in (0.0, 0.4, 0.999, 1.0):
        assert not run(out := folder / f"line-{number}-{share}.zarr", in_manifest_line(number, share))
        assert run(out)
# Killed over and over, each time a little later: what a machine that keeps failing does.
attempts = 0
while not run(folder / "again.zarr", at_rename(attempts // 4 + 1, before=attempts % 2 == 0)):
    attempts += 1
sys.stdout.write(f"{renames} {attempts}")
