"""Freed memory stays with the process, unless the user has said how it is to be kept."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ROUNDS, ARRAYS, BYTES = 20, 12, 2 << 20  # larger ones NumPy would ask huge pages for
FAULTS = f"""
import resource, sys
import numpy as np
from softmax_bottleneck.core.allocator import keep_freed_memory
kept = sys.argv[1] == "keep" and keep_freed_memory()
def work():
    for _ in range({ROUNDS}):
        arrays = [np.ones({BYTES}, np.uint8) for _ in range({ARRAYS})]
        del arrays
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = ROUNDS * ARRAYS * BYTES // 4096


def _faults(how: str, **environment: str) -> tuple[bool, int]:
    """Return whether memory is said to be kept, and how many pages were fetched in rounds of the same allocations."""
    bare = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"}
    run = subprocess.run(
        [sys.executable, "-c", FAULTS, how], env={**bare, **environment}, capture_output=True, text=True, check=True
    )
    kept, faults = run.stdout.split()
    return kept == "1", int(faults)


def test_pages_are_fetched_once() -> None:
    kept, faults = _faults("keep")
    assert kept
    assert faults < PAGES / 20


def test_left_alone_they_are_fetched_again_and_again() -> None:
    """Else there would be nothing to do."""
    assert _faults("leave")[1] > PAGES / 2


@pytest.mark.parametrize(
    ("name", "value", "keeps"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "131072", False),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072", False),
        ("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=2048", True),
    ],
)
def test_settings_of_malloc_in_the_environment_stay(name: str, value: str, keeps: bool) -> None:
    assert _faults("keep", **{name: value})[0] is keeps
