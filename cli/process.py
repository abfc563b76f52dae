"""What the command sets for its whole process: variables, memory, standard streams, and how signals end it.

The library sets none of this for a Python program that uses it. With ``SOFTMAX_BOTTLENECK_PROCESS=plain`` the command
leaves variables and memory as they are, too.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from softmax_bottleneck.core.allocator import keep_freed_memory
from softmax_bottleneck.core.interruption import INTERRUPTIONS, Terminated
from softmax_bottleneck.core.workers import SAFE_PATH

from .outputs import say_interrupted

VARIABLE, PLAIN = "SOFTMAX_BOTTLENECK_PROCESS", "plain"
SECONDS_UNSEEN = 1.0
"""How long a library may compute before a signal that Python has not seen ends the process."""
SECONDS_AGAIN = 0.05
"""Time after which a signal comes again whose exception was lost."""
SECONDS_TO_END = 2.0
"""How long the command may take to leave its work before the next signal ends it at once."""


def prepare() -> None:
    """Set the variables, the memory and the standard streams of this process."""
    if os.environ.get(VARIABLE) != PLAIN:
        os.environ["MPLBACKEND"] = "agg"  # figures go to files, whatever is set for windows
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # one sentence says what torch's processes run into
        # By default a thread that waits for another spins for milliseconds, on the core that the other needs once
        # anything else runs: steps then take two to thirty times as long.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
        os.environ[SAFE_PATH] = "1"  # a Python process that this one starts runs no file of the working folder
        keep_freed_memory()
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # a file that is opened later would take this number
            os.open(os.devnull, os.O_RDWR)
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    sys.stderr = _StandardError(io.FileIO(2, "w", closefd=False), encoding, "backslashreplace", write_through=True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


class _StandardError(io.TextIOWrapper):
    """Standard error that drops what it cannot take: it holds reports and warnings, and work must not end for them."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)


class Signals:
    """Ctrl-C and SIGTERM, from now to the end of the process: one exception in the main thread for the first signal.

    A thread receives the signals too. Where Python does not see one, while LAPACK or another library computes, the
    thread ends the process: every file is whole at every instant, as after a kill. No lock is taken in a handler, which
    another signal may interrupt.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.received: int | None = None
        """The signal that ends the command."""
        self._numbers, self._since = numbers, 0.0
        for number in numbers:
            signal.signal(number, self._receive)
        sys.unraisablehook = self._lost
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader,), daemon=True).start()

    def ignore(self) -> None:
        """Ignore the signals from now on: the command has ended."""
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """Raise for the first signal; ignore those that follow at once, and end the process for one after that."""
        if self.received is None:
            self.received, self._since = number, time.monotonic()
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated
        if time.monotonic() - self._since > SECONDS_TO_END:
            os._exit(say_interrupted(number))

    def _lost(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Send the signal again whose exception was raised where Python drops it: in a finalizer, say."""
        if self.received is None or not issubclass(unraisable.exc_type, INTERRUPTIONS):
            sys.__unraisablehook__(unraisable)
            return
        number, self.received = self.received, None
        threading.Timer(SECONDS_AGAIN, os.kill, (os.getpid(), number)).start()

    def _watch(self, reader: int) -> None:
        """End the process for a signal that Python does not see; work may defer signals to the end of a step."""
        while received := os.read(reader, 1):
            time.sleep(SECONDS_UNSEEN)
            if self.received is None and signal.getsignal(received[0]) == self._receive:
                os._exit(say_interrupted(received[0]))
