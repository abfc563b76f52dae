"""How measurements are printed: one as lines, several as a table."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from softmax_bottleneck.core.printable import printable

from .options import progress
from .outputs import emit

if TYPE_CHECKING:
    from softmax_bottleneck.results.base import Result
    from softmax_bottleneck.sources import Source

STANDS_OUT = ("rank", "verdict")
"""Labels of the lines that a terminal shows in bold."""
NARROWEST = 40
"""Least width in columns to which lines are wrapped."""


format_option = click.option(
    "--format",
    "as_format",
    type=click.Choice(["lines", "table", "markdown", "latex", "csv", "json"]),
    panel="Output",
    help="Format of the printed result.  [default: lines for one SOURCE, table for several]",
)


def measure_all(
    sources: Mapping[str, Source], measure: Callable[[Source], Result], show: Callable[[Sequence[Result]], None]
) -> list[Result]:
    """Measure each source, name each result by its label, and show all results.

    Of several sources, each result is printed on standard error as soon as it is there. An error or an interruption
    ends the measurements; the results before it are shown.
    """
    from softmax_bottleneck.results.base import short_names

    results: list[Result] = []
    try:
        for label, source in sources.items():
            result = measure(source)
            given = label not in short_names([result.name])  # a label that the user gave, and not the end of the path
            results.append(result.named(label) if given or len(sources) > 1 else result)
            if len(sources) > 1:
                progress().line(results[-1].line())
    finally:
        if results:
            show(results)
    return results


def show(result: Result, json_to: Path | None = None) -> None:
    """Print one measurement as lines; see `show_all`."""
    show_all([result], "lines", json_to)


def show_all(results: Sequence[Result], as_format: str | None, json_to: Path | None) -> None:
    """Print measurements, at least one, and write them as JSON if that is requested.

    The JSON of one result is one object; several are a list under ``"results"``.
    """
    values = results[0].to_dict() if len(results) == 1 else {"results": [result.to_dict() for result in results]}
    emit(values, _text(results, as_format), json_to, as_json=as_format == "json", styled=True)


def _text(results: Sequence[Result], as_format: str | None) -> str:
    from softmax_bottleneck.results.base import cells, table

    if as_format in ("markdown", "latex", "csv"):
        return printable(table(results, format=as_format), lines=True)
    if as_format == "table" or (as_format is None and len(results) > 1):
        return printable(terminal_table(*cells(results)), lines=True)
    return "\n\n".join(aligned(each.all_rows() if as_format == "details" else each.rows()) for each in results)


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """Return labels and texts as lines, wrapped with a hanging indent to the terminal, or to 80 columns elsewhere."""
    width = _width()
    rows = [(label, printable(text)) for label, text in rows]
    label_width = max(len(label) for label, _ in rows)
    lines = []
    for label, text in rows:
        hanging = textwrap.fill(
            text,
            max(width, NARROWEST),
            initial_indent=f"{label:>{label_width}}  ",
            subsequent_indent=" " * (label_width + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines.append(click.style(hanging, bold=True) if sys.stdout.isatty() and label in STANDS_OUT else hanging)
    return "\n".join(lines)


def terminal_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that is at most as wide as the terminal, or 80 columns where it is not read on one."""
    from softmax_bottleneck.results.tables import terminal

    return terminal(header, rows, width=_width())


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
