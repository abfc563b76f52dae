"""Standard streams that may be closed, full, or in a narrow encoding."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import rich_click as click

from softmax_bottleneck.core.printable import printable


@contextmanager
def usable_streams() -> Iterator[None]:
    """Let a command print while the block runs, whatever its standard streams are.

    A closed stream becomes the null device, also for files opened later, which would take its number. A character that
    the encoding lacks is written as its escape sequence. What standard error cannot take is dropped: it holds reports
    and warnings, and work must not end for them.
    """
    _open_closed()
    out, error = sys.stdout, sys.stderr
    errors = getattr(out, "errors", None)
    _reconfigure(out, "backslashreplace")
    sys.stderr = _Forgiving(error)
    try:
        yield
    finally:
        sys.stderr = error
        if errors is not None:
            _reconfigure(out, errors)


def echo(*lines: object, err: bool = False) -> None:
    """Print lines without characters that steer a terminal; a line may hold the name of any file."""
    for line in lines:
        click.echo(printable(str(line)), err=err)


def echo_text(text: str, *, err: bool = False) -> None:
    """Print a text of several lines without characters that steer a terminal."""
    click.echo(printable(text, lines=True), err=err)


def flush_output() -> None:
    """Write out what standard output still holds; `OSError` when it cannot be written, and then it is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop(sys.stdout)
        raise


def say(line: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _open_closed() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _reconfigure(stream: Any, errors: str) -> None:
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=errors)


def _drop(stream: TextIO) -> None:
    """Point a stream that takes nothing at the null device, so that Python does not fail on it at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()


class _Forgiving:
    """A text stream whose failures do not end the work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            _drop(self._stream)
            return len(text)

    def flush(self) -> None:
        """Flush the stream, or drop what it holds."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            _drop(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
