"""How results are printed, without characters that steer a terminal, and written."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from softmax_bottleneck.core.interruption import EXIT_CODES
from softmax_bottleneck.core.printable import printable
from softmax_bottleneck.errors import for_command

from .paths import STANDARD

if TYPE_CHECKING:
    from softmax_bottleneck.results.base import Result, Results

STANDS_OUT = ("rank", "verdict")
"""Labels of the lines that a terminal shows in bold."""
NARROWEST = 40
"""Least width in columns to which lines are wrapped."""


def show(result: Result, json_to: Path | None = None) -> None:
    """Print one measurement as lines; see `show_all`."""
    show_all([result], "lines", json_to)


def show_all(results: Sequence[Result], as_format: str | None, json_to: Path | None) -> None:
    """Print measurements, at least one, and write them as JSON if that is requested.

    The JSON of one result is one object; several are a list under ``"results"``.
    """
    from softmax_bottleneck.results.base import Results

    several = results if isinstance(results, Results) else Results(results)
    values = several[0].to_dict() if len(several) == 1 else several.to_dict()
    emit(values, _text(several.ordered(), as_format), json_to, as_json=as_format == "json", styled=True)


def _text(results: Results[Any], as_format: str | None) -> str:
    from softmax_bottleneck.results.base import cells, table

    if as_format in ("markdown", "latex", "csv"):
        return printable(table(results, format=as_format), lines=True)
    if as_format == "table" or (as_format is None and len(results) > 1):
        verdict = f"{textwrap.fill(results.verdict, _width())}\n\n" if results.verdict else ""
        notes = (f"\n\n{textwrap.fill(note, _width())}" for note in results.footnotes)
        return printable("".join([verdict, terminal_table(*cells(results)), *notes]), lines=True)
    return "\n\n".join(aligned(each.rows(details=as_format == "details")) for each in results)


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """Return labels and texts as lines, wrapped with a hanging indent to the terminal, or to 80 columns elsewhere."""
    width = _width()
    rows = [(label, printable(for_command(text), lines="  " in text)) for label, text in rows]
    label_width = max(len(label) for label, _ in rows)
    lines = []
    for label, text in rows:
        hanging = (
            f"{label:>{label_width}}  {text}"
            if "  " in text
            else textwrap.fill(
                text,
                max(width, NARROWEST),
                initial_indent=f"{label:>{label_width}}  ",
                subsequent_indent=" " * (label_width + 2),
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
        lines.append(click.style(hanging, bold=True) if sys.stdout.isatty() and label in STANDS_OUT else hanging)
    return "\n".join(lines)


def terminal_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that is at most as wide as the terminal, or 80 columns where it is not read on one."""
    from softmax_bottleneck.results.tables import terminal

    return terminal(header, rows, width=_width())


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def emit(values: Any, text: str, json_to: Path | None, *, as_json: bool = False, styled: bool = False) -> None:
    """Print a result as text or as one JSON object, and write the JSON file if one is named.

    ``styled`` text is printable already, and may hold styles of the terminal.
    """
    as_json = as_json or json_to == STANDARD
    if as_json:
        narrow = not (sys.stdout.encoding or "").lower().startswith("utf")
        text = json.dumps(values, indent=2, ensure_ascii=narrow, allow_nan=False)
    if json_to not in (None, STANDARD):
        from softmax_bottleneck.core.files import write_json

        write_json(json_to, values)
    click.echo(text) if styled and not as_json else echo_text(text)


def echo(*lines: object, err: bool = False) -> None:
    """Print lines without characters that steer a terminal; a line may hold the name of any file."""
    for line in lines:
        click.echo(printable(for_command(line)), err=err)


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
