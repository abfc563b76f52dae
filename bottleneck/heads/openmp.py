"""Work on the threads that torch's own kernels run on: other threads would wait for those to give up their cores.

A thread of OpenMP that has nothing to do keeps its core for milliseconds, in case the next kernel comes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

import torch

_MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def in_parallel(works: Sequence[Callable[[], None]]) -> None:
    """Do each of a few pieces of work once, at the same time where torch runs on OpenMP, else one after the other.

    Args:
        works: as many as threads are wanted; at the same time only while they hold no lock of Python's.
    """
    runtime = _runtime()
    if runtime is None or len(works) < 2:
        for work in works:
            work()
        return
    errors: list[BaseException] = []
    done: list[int] = []

    def member(_: object) -> None:
        """Do a thread's part: all of it should there be fewer threads than were asked for."""
        try:
            for number in range(runtime.omp_get_thread_num(), len(works), runtime.omp_get_num_threads()):
                works[number]()
                done.append(number)
        except BaseException as error:  # through C there is no way for it
            errors.append(error)

    # All of torch's threads, though some have nothing to do: those left out of a team are ended.
    runtime.GOMP_parallel(_MEMBER(member), None, max(len(works), torch.get_num_threads()), 0)
    if errors:
        raise errors[0]
    if len(done) < len(works):  # a signal came before a member's first line, and C has lost its exception
        raise KeyboardInterrupt


@cache
def _runtime() -> ctypes.CDLL | None:
    """Return the OpenMP in the process's global scope, where torch puts its own, if it has GNU's entry points."""
    process = ctypes.CDLL(None)
    names = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"
    return process if all(hasattr(process, name) for name in names) else None
