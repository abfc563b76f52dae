"""Where the time of a measurement goes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")
_seconds: ContextVar[dict[str, float]] = ContextVar("seconds")


@contextmanager
def counting() -> Iterator[None]:
    """Count the time from here on; see `seconds_so_far`."""
    token = _seconds.set({})
    try:
        yield
    finally:
        _seconds.reset(token)


def seconds_so_far() -> dict[str, float]:
    """Return the seconds of each part of what is being counted; empty if nothing is."""
    return dict(_seconds.get({}))


@contextmanager
def spent(part: str) -> Iterator[None]:
    """Add the time of a block to a part, without the time of the parts within."""
    seconds = _seconds.get({})
    started, others = time.perf_counter(), sum(seconds.values())
    try:
        yield
    finally:
        others = sum(seconds.values()) - others
        seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - started - others


def each_spent(part: str, values: Iterable[Value]) -> Iterator[Value]:
    """Yield values, and add the time that each takes to a part."""
    iterator = iter(values)
    while True:
        try:
            with spent(part):
                value = next(iterator)
        except StopIteration:
            return
        yield value
