"""Parallel execution on the OpenMP (Open Multi-Processing) threads that torch's kernels use.

Threads of another pool would compete with them: an idle OpenMP thread keeps its core busy for milliseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

import torch

_MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def in_parallel(tasks: Sequence[Callable[[], None]]) -> None:
    """Call each task once, in parallel where torch runs on OpenMP, else one after the other.

    Args:
        tasks: one for each thread; they run in parallel while they have released Python's global interpreter lock.
    """
    runtime = _runtime()
    if runtime is None or len(tasks) < 2:
        for task in tasks:
            task()
        return
    errors: list[BaseException] = []
    done: list[int] = []

    def member(_: object) -> None:
        """Call this thread's tasks; there may be fewer threads than tasks."""
        try:
            for number in range(runtime.omp_get_thread_num(), len(tasks), runtime.omp_get_num_threads()):
                tasks[number]()
                done.append(number)
        except BaseException as error:  # an exception cannot pass through C code
            errors.append(error)

    # All of torch's threads take part: OpenMP would end those that a parallel region leaves out.
    runtime.GOMP_parallel(_MEMBER(member), None, max(len(tasks), torch.get_num_threads()), 0)
    if errors:
        raise errors[0]
    if len(done) < len(tasks):  # a signal interrupted a member before its ``try``, and C code dropped the exception
        raise KeyboardInterrupt


@cache
def _runtime() -> ctypes.CDLL | None:
    """Return torch's OpenMP library from the process's global scope, if it has GNU's entry points."""
    process = ctypes.CDLL(None)
    names = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"
    return process if all(hasattr(process, name) for name in names) else None
