"""A setting of the C library to keep freed memory, since returning it and fetching new pages in every step is slow."""

from __future__ import annotations

import ctypes
import os

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt(3)."""
KEPT = 256 << 20
"""Free bytes at the end of the heap above which they are returned to the system."""
LARGEST = 32 << 20
"""Largest allocation, in bytes, from the heap; also the upper limit of glibc's own choice."""
SETTINGS = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"
"""Environment variables of a user's own settings, which are respected, as is ``glibc.malloc`` in GLIBC_TUNABLES."""


def keep_freed_memory() -> bool:
    """Let the C library keep up to 256 MiB of freed memory at the end of the heap; return whether it did.

    This makes loops faster that allocate and free the same tensors: by default glibc returns freed memory to the system
    as soon as it exceeds twice the largest tensor so far. The command calls this once, and so do worker processes.
    Nothing changes if the environment holds settings of malloc, or with another C library.
    """
    process = ctypes.CDLL(None)
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if (
        any(name in os.environ for name in SETTINGS)
        or "glibc.malloc." in tunables
        or not hasattr(process, "gnu_get_libc_version")
    ):
        return False
    return bool(process.mallopt(MMAP_THRESHOLD, LARGEST) and process.mallopt(TRIM_THRESHOLD, KEPT))
