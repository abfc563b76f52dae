"""Freed memory that stays with the process: to fetch its pages anew at every step costs more than the step's sums."""

from __future__ import annotations

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt(3)."""
KEPT = 256 << 20
"""Bytes that stay with the process once they are freed, at most."""
LARGEST = 32 << 20
"""Bytes of an allocation that are taken from those; glibc's own choice stays below this too."""
SETTINGS = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"
"""What a user has set counts."""


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep up to 256 MiB of what this process frees; return whether it does.

    For work that takes and frees the same tensors over and over: glibc, left alone, gives them back to the system as
    soon as they come to twice its largest tensor so far. Nothing is changed where the environment says how memory is
    to be kept, and where the C library is another.
    """
    process = ctypes.CDLL(None)
    if not hasattr(process, "gnu_get_libc_version") or any(name in os.environ for name in SETTINGS):
        return False
    return bool(process.mallopt(MMAP_THRESHOLD, LARGEST) and process.mallopt(TRIM_THRESHOLD, KEPT))
