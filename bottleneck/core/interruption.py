"""Ctrl-C and SIGTERM: long work stops where its state is whole, and says what it leaves behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Terminated(BaseException):
    """SIGTERM was received: the work unwinds as after Ctrl-C, so that files being written stay whole."""


INTERRUPTIONS = (KeyboardInterrupt, Terminated)
EXIT_CODES: dict[int, int] = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""The signals that interrupt a command, and its exit code after each."""


@contextmanager
def note_if_interrupted(kept: Callable[[], str]) -> Iterator[None]:
    """Add a sentence to an interruption of the block, as a note of the exception (PEP 678).

    Args:
        kept: returns what is kept of the work, or an empty string; called only after an interruption.
    """
    try:
        yield
    except INTERRUPTIONS as stop:
        if sentence := kept():
            stop.add_note(sentence)
        raise


class Stop:
    """A request to stop, kept until the work can stop: the first signal is noted, a second one acts at once."""

    def __init__(self) -> None:
        self._previous: dict[int, Any] = {}
        self._number: int | None = None
        self._acts_at_once = False

    @property
    def requested(self) -> bool:
        """Whether a signal waits to be obeyed."""
        return self._number is not None

    @contextmanager
    def deferred(self) -> Iterator[Stop]:
        """Note signals while the block runs, in the main thread, and obey at its end one that still waits.

        Other threads and ignored signals stay as they are.
        """
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self._previous = {number: handler for number, handler in handlers.items() if callable(handler)}
        for number in self._previous:
            signal.signal(number, self._receive)
        try:
            yield self
        finally:
            for number, handler in self._previous.items():
                signal.signal(number, handler)
        self.obey()  # a signal that came after the work looked for one last

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let signals act at once while the block runs, because it changes nothing."""
        self._acts_at_once = True
        try:
            self.obey()
            yield
        finally:
            self._acts_at_once = False

    def obey(self) -> None:
        """Do what the noted signal asks for, if there is one: call the handler that it had before `deferred`."""
        number, self._number = self._number, None
        if number is not None:
            self._previous[number](number, None)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        acts_now = self._acts_at_once or self.requested
        self._number = number
        if acts_now:
            self.obey()
