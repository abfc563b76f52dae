"""Freed memory that stays with the process: to fetch its pages anew at every step costs more than the step's sums."""

from __future__ import annotations

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt(3)."""
KEPT = 256 << 20
"""Free bytes at the end of the heap from which on they go back to the system."""
LARGEST = 32 << 20
"""Bytes of an allocation that are taken from those; glibc's own choice stays below this too."""
SETTINGS = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"
TUNABLES, OF_MALLOC = "GLIBC_TUNABLES", "glibc.malloc."
"""What a user has set counts."""


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep what is freed until 256 MiB of it lie at the heap's end; return whether it agreed.

    For work that takes and frees the same tensors over and over: glibc, left alone, gives them back to the system as
    soon as they come to twice its largest tensor so far. Nothing is changed where the environment says how memory is
    to be kept, and where the C library is another.
    """
    process = ctypes.CDLL(None)
    told = any(name in os.environ for name in SETTINGS) or OF_MALLOC in os.environ.get(TUNABLES, "")
    if told or not hasattr(process, "gnu_get_libc_version"):
        return False
    return bool(process.mallopt(MMAP_THRESHOLD, LARGEST) and process.mallopt(TRIM_THRESHOLD, KEPT))
