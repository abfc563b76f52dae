"""Ctrl-C and SIGTERM end a command once and soon, with its files whole."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from softmax_bottleneck.core.interruption import INTERRUPTIONS, Terminated

SECONDS_TO_REACT = 1.0
"""How long Python may take to see a signal: while LAPACK or another library computes, it sees none."""
SECONDS_TO_END = 2.0
"""How long the command may take to leave its work before the next signal ends it at once."""
SECONDS_TO_REPEAT = 0.05
"""Pause before a signal is sent again whose exception was lost."""
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit code after each signal."""


@contextmanager
def handled_signals(say_goodbye: Callable[[], None]) -> Iterator[None]:
    """Raise `KeyboardInterrupt` or `Terminated` once while the block runs, and end the process if that takes too long.

    A thread receives the signals too. Where a library computes and Python does not see one, the thread ends the
    process: every file is whole at every instant, as after a kill. An exception that Python cannot pass on, raised in
    the callback of a weak reference or in a ``__del__``, is raised again soon.

    Args:
        say_goodbye: prints the sentence that tells of the interruption.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = _Stop(say_goodbye)
    ours = [number for number in CODES if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, stop.receive) for number in ours}
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    hook, sys.unraisablehook = sys.unraisablehook, stop.repeat
    watcher = threading.Thread(target=stop.watch, args=(reader,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        sys.unraisablehook = hook
        stop.repetition.cancel()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(writer)  # ends the thread
        watcher.join()
        os.close(reader)


class _Stop:
    def __init__(self, say_goodbye: Callable[[], None]) -> None:
        self._say_goodbye, self._seen, self._since = say_goodbye, threading.Event(), 0.0
        self._hook = sys.unraisablehook
        self.repetition = threading.Timer(SECONDS_TO_REPEAT, os.kill)
        """Sends the signal again whose exception was lost last."""

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Raise for the first signal; ignore those that follow at once, and end for one after that."""
        if not self._seen.is_set():
            self._since = time.monotonic()
            self._seen.set()
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated
        if time.monotonic() - self._since > SECONDS_TO_END:
            self._leave(number)

    def repeat(self, unraisable: Any) -> None:
        """Send a signal again whose exception Python cannot pass on."""
        if not isinstance(unraisable.exc_value, INTERRUPTIONS):
            self._hook(unraisable)
            return
        number = signal.SIGTERM if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        self._seen.clear()
        self.repetition.cancel()
        self.repetition = threading.Timer(SECONDS_TO_REPEAT, os.kill, (os.getpid(), number))
        self.repetition.start()

    def watch(self, reader: int) -> None:
        """End the process when a signal has come that Python does not see."""
        while received := os.read(reader, 1):
            number = received[0]
            # Work may defer signals to the end of a step.
            is_ours = number in CODES and signal.getsignal(number) == self.receive
            if is_ours and not self._seen.wait(SECONDS_TO_REACT):
                self._leave(number)

    def _leave(self, number: int) -> NoReturn:
        with suppress(OSError, ValueError):
            self._say_goodbye()
        os._exit(CODES[signal.Signals(number)])
