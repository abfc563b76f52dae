"""Progress displays: a bar on a terminal, plain lines elsewhere, nothing by default."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm import tqdm

from .printable import printable

SECONDS_BETWEEN_LINES = 15.0


class Bar:
    """Progress of one task; this class reports nothing."""

    def advance(self, amount: int, note: str = "") -> None:
        """Report that ``amount`` more units are done; ``note`` replaces the last note."""

    def stage(self, description: str) -> None:
        """Report that all units are done, and that work of unknown length follows."""


SILENT_BAR = Bar()


class Progress:
    """A progress display that reports nothing, the default of library functions and the base of others."""

    @contextmanager
    def bar(self, description: str, total: int, unit: str, *, done: int = 0) -> Iterator[Bar]:
        """Report one task of ``total`` units, ``done`` of them earlier, while the block runs."""
        yield SILENT_BAR

    def line(self, text: str) -> None:
        """Report one finished step."""


SILENT = Progress()


def reporting(progress: Progress | bool) -> Progress:
    """Return a progress report: ``True`` means one on standard error, ``False`` a silent one."""
    if isinstance(progress, Progress):
        return progress
    return StreamProgress() if progress else SILENT


class StreamProgress(Progress):
    """A progress display on ``stream``, by default standard error: a tqdm bar on a terminal, lines elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream

    @contextmanager
    def bar(self, description: str, total: int, unit: str, *, done: int = 0) -> Iterator[Bar]:
        """Report one task of ``total`` units, ``done`` of them earlier, while the block runs."""
        if self.stream.isatty():
            with tqdm(
                total=total,
                initial=done,
                desc=printable(description),
                unit=unit.removesuffix("s"),
                file=self.stream,
                leave=False,
            ) as shown:
                yield _TqdmBar(shown)
        else:
            yield _Lines(self, description, total, unit, done=done)

    def line(self, text: str) -> None:
        """Print one line."""
        tqdm.write(printable(text), file=self.stream)
        self.stream.flush()


class _TqdmBar(Bar):
    def __init__(self, shown: tqdm[Any]) -> None:
        self._shown = shown

    def advance(self, amount: int, note: str = "") -> None:
        if note:
            self._shown.set_postfix_str(printable(note), refresh=False)
        self._shown.update(amount)

    def stage(self, description: str) -> None:
        self._shown.bar_format = "{desc}"  # a full bar leaves no room for it
        self._shown.set_description_str(printable(description))


class _Lines(Bar):
    def __init__(self, progress: Progress, description: str, total: int, unit: str, *, done: int) -> None:
        self._progress, self._description, self._total, self._unit = progress, description, total, unit
        self._initial = self._done = done
        self._start = self._last = time.monotonic()

    def advance(self, amount: int, note: str = "") -> None:
        self._done += amount
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            seconds = (self._last - self._start) / max(1, self._done - self._initial) * (self._total - self._done)
            tail = f", {note}" if note else ""
            self._progress.line(
                f"{self._description}: {self._done:,}/{self._total:,} {self._unit}, "
                f"{tqdm.format_interval(seconds)} left{tail}"
            )

    def stage(self, description: str) -> None:
        if time.monotonic() - self._start >= SECONDS_BETWEEN_LINES:
            self._progress.line(f"{self._description}: {description}")
