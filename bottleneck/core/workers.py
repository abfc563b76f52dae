"""Worker processes that leave Ctrl-C to the process that started them, and end with it."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any


@contextmanager
def worker_pool(processes: int, **settings: Any) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of spawned processes; when the block fails or is interrupted, they are ended at once.

    Args:
        processes: largest number of them.
        settings: ``initializer`` and ``initargs``, as the pool takes them.
    """
    resource_tracker.ensure_running()  # it unblocks signals when it starts
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), **settings)
    try:
        yield pool
    except BaseException:
        for child in multiprocessing.active_children():
            child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Start processes that receive no SIGINT: while the block runs it is blocked, and a new process inherits that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
