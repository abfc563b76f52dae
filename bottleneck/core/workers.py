"""Worker processes that leave Ctrl-C to the process that started them, and end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from ..errors import BottleneckError
from .allocator import keep_freed_memory

Task = TypeVar("Task")
KILLED = "a worker process was killed, probably because memory ran out: run the same command again with fewer processes"
SAFE_PATH = "PYTHONSAFEPATH"
_shared: Any = None
"""In a worker: the first argument of all its calls."""


def run_in_workers(
    function: Callable[[Any, Task], Any], shared: Any, tasks: Iterable[Task], *, processes: int
) -> Iterator[tuple[Task, Any]]:
    """Yield each task with its result, in the order in which they finish; end the workers when that is interrupted.

    Args:
        function: a function of a module; it is called with ``shared`` and one task.
        shared: sent to each worker once.
        tasks: arguments.
        processes: largest number of workers.

    Raises:
        BottleneckError: a worker was killed.
    """
    with safe_children():
        resource_tracker.ensure_running()  # it unblocks signals when it starts
    others = {*multiprocessing.active_children()}
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_start, initargs=(shared,))
    try:
        with _without_interrupts(), safe_children():
            waiting = {pool.submit(_call, function, task): task for task in tasks}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    except BrokenProcessPool as error:
        raise BottleneckError(KILLED) from error
    except BaseException:
        for child in {*multiprocessing.active_children()} - others:
            child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start(shared: Any) -> None:
    """Keep the shared argument, and end this worker when the process that started it ends."""
    global _shared
    _shared = shared
    keep_freed_memory()

    def wait() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _call(function: Callable[[Any, Task], Any], task: Task) -> Any:
    return function(_shared, task)


@contextmanager
def safe_children() -> Iterator[None]:
    """Let a Python process that the block starts ignore the working folder: no file there runs as a module."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH)
        if before is not None:
            os.environ[SAFE_PATH] = before


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that receive no SIGINT: while the block runs it is blocked, and a new process inherits that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
