"""How long work reports on itself: a bar on a terminal, plain lines elsewhere, nothing by default."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 15.0


class Bar:
    """A task under way; this one reports nothing."""

    def advance(self, amount: int, note: str = "") -> None:
        """Report that ``amount`` more units are done; ``note`` replaces the last note."""


class Progress:
    """Reports nothing; the base of what does. Library functions take it as their default."""

    @contextmanager
    def bar(self, description: str, total: int, unit: str) -> Iterator[Bar]:
        """Report one task of ``total`` units while the block runs."""
        yield Bar()

    def line(self, text: str) -> None:
        """Report one finished step."""


SILENT = Progress()


class StreamProgress(Progress):
    """Reports to ``stream`` (standard error): a tqdm bar when it is a terminal, else a line now and then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream

    @contextmanager
    def bar(self, description: str, total: int, unit: str) -> Iterator[Bar]:
        """Report one task of ``total`` units while the block runs."""
        if self.stream.isatty():
            with tqdm(total=total, desc=description, unit=unit, file=self.stream, leave=False) as shown:
                yield _TqdmBar(shown)
        else:
            yield _Lines(self, description, total, unit)

    def line(self, text: str) -> None:
        """Print one line."""
        tqdm.write(text, file=self.stream)
        self.stream.flush()


class _TqdmBar(Bar):
    def __init__(self, shown: tqdm[Any]) -> None:
        self._shown = shown

    def advance(self, amount: int, note: str = "") -> None:
        if note:
            self._shown.set_postfix_str(note, refresh=False)
        self._shown.update(amount)


class _Lines(Bar):
    def __init__(self, progress: Progress, description: str, total: int, unit: str) -> None:
        self._progress, self._description, self._total, self._unit = progress, description, total, unit
        self._done, self._last = 0, time.monotonic()

    def advance(self, amount: int, note: str = "") -> None:
        self._done += amount
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            tail = f", {note}" if note else ""
            self._progress.line(f"{self._description}: {self._done:,}/{self._total:,} {self._unit}{tail}")
