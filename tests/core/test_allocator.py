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


@pytest.mark.parametrize(
    ("how", "environment", "kept"),
    [
        ("keep", {}, True),
        ("leave", {}, False),  # else there would be nothing to do
        ("keep", {"MALLOC_TRIM_THRESHOLD_": "131072"}, False),
        ("keep", {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}, False),
        ("keep", {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=2048"}, True),
    ],
)
def test_pages_are_fetched_once_unless_the_user_has_set_malloc(
    how: str, environment: dict[str, str], kept: bool
) -> None:
    """Whether memory is said to be kept, and how many pages were fetched in rounds of the same allocations."""
    bare = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"}
    command = [sys.executable, "-c", FAULTS, how]
    run = subprocess.run(command, env={**bare, **environment}, capture_output=True, text=True, check=True)
    is_kept, faults = map(int, run.stdout.split())
    assert is_kept == kept
    assert faults < PAGES / 20 if kept else faults > PAGES / 2
