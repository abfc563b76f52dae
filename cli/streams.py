"""What is printed: names and texts without the characters that steer a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import rich_click as click

from softmax_bottleneck.core.interruption import EXIT_CODES
from softmax_bottleneck.core.printable import printable


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
        with suppress(OSError):  # Python flushes it once more at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def say_interrupted(number: int, notes: Sequence[str] = ()) -> int:
    """Print the sentence for an interruption, in which ``notes`` say what is kept; return the exit code."""
    echo("; ".join(["interrupted", *notes]), err=True)
    return EXIT_CODES[number]
