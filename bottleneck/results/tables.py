"""Tables as Markdown and LaTeX, with every character escaped, and for a terminal."""

from __future__ import annotations

import html
import io
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, final

if TYPE_CHECKING:
    import pandas as pd

CellRows = Sequence[Sequence[str]]

LONG = 60
"""Largest number of characters of a cell that Markdown aligns; LaTeX breaks the lines of longer ones."""

MOST_COLUMNS = 12
"""Largest number of columns in a notebook of a table that could be turned."""
END_OF_LINE = "\r\n\x1f"
"""Python's writer of CSV quotes what holds one of these characters."""
MARKDOWN = str.maketrans(
    {**{char: f"\\{char}" for char in "\\`*_[]|~"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " "}
)
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
        "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
        "|": r"\textbar{}", "\n": " ", "±": r"$\pm$", "×": r"$\times$", "–": "--", "−": "$-$", "†": r"\textdagger{}",
        "σ": r"$\sigma$", "α": r"$\alpha$", "ε": r"$\varepsilon$", "≥": r"$\geq$", "≤": r"$\leq$", "·": r"$\cdot$",
        "₁": "$_1$", "∞": r"$\infty$", "‖": r"$\|$", "Σ": r"$\Sigma$", "η": r"$\eta$", "λ": r"$\lambda$",
        "≈": r"$\approx$", **{up: f"$^{sign}$" for up, sign in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)},
    }
)  # fmt: skip


def escape_markdown(text: str) -> str:
    """Return text that Markdown and HTML show unchanged.

    Example:
        >>> escape_markdown("a|b <script>")
        'a\\\\|b &lt;script&gt;'
    """
    return text.translate(MARKDOWN)


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX shows unchanged.

    Example:
        >>> escape_latex("100 % of d_1")
        '100 \\% of d\\_1'
    """
    return text.translate(LATEX)


def is_number(text: str) -> bool:
    """Return whether a cell is aligned to the right: a number, with or without spread, unit and interval."""
    return bool(re.match(r"[~≥±−-]?[\d.]", text)) or text in ("", "–", "none")


class Table(NamedTuple):
    """Cells as text."""

    header: Sequence[str]
    """Names of the columns."""
    rows: CellRows
    """A cell for each column."""

    @property
    def right(self) -> list[bool]:
        """Whether each column is aligned to the right: all but the first, if all its cells are numbers."""
        return [place > 0 and all(is_number(row[place]) for row in self.rows) for place in range(len(self.header))]

    @property
    def lengths(self) -> list[int]:
        """Number of characters of the longest cell of each column."""
        return [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]


@final
class TableText(str):
    """A table as plain text, which a notebook shows as a table."""

    header: Sequence[str]
    rows: CellRows

    def __new__(cls, text: str, header: Sequence[str], rows: CellRows) -> Self:
        """Keep the cells beside the text."""
        table = super().__new__(cls, text)
        table.header, table.rows = header, rows
        return table

    def __repr__(self) -> str:
        """Return the text itself: in a console it is read as a table."""
        return str(self)

    def _repr_html_(self) -> str:
        if len(self.header) > max(MOST_COLUMNS, len(self.rows)):  # turned: quantities below each other
            first, *others = zip(self.header, *self.rows, strict=True)
            return html_table(others, first)
        return html_table(self.rows, self.header)


def html_table(rows: CellRows, header: Sequence[str] = ()) -> str:
    """Return a table in HTML; the first cell of each row names it."""
    lines: list[tuple[Sequence[str], Sequence[str]]] = [(header, ())] if header else []
    body = ""
    for heads, others in [*lines, *((row[:1], row[1:]) for row in rows)]:
        body += "<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in heads)
        body += "".join(f"<td style='text-align: left'>{html.escape(cell)}</td>" for cell in others) + "</tr>"
    return f"<table>{body}</table>"


def markdown(header: Sequence[str], rows: CellRows) -> str:
    """Return an aligned Markdown table; columns of numbers are aligned to the right."""
    right = Table(header, rows).right
    lines = [[escape_markdown(cell) for cell in line] for line in (header, *rows)]
    widths = [max([2, *(len(cell) for cell in column if len(cell) <= LONG)]) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * (width - aside) + ":" * aside for width, aside in zip(widths, right, strict=True)])
    return "\n".join(
        "| " + " | ".join(f"{cell:{'>' if aside else '<'}{width}}" for cell, width, aside in cells) + " |"
        for cells in (zip(line, widths, right, strict=True) for line in lines)
    )


def latex(header: Sequence[str], rows: CellRows, *, caption: str = "", label: str = "") -> str:
    """Return a LaTeX table for the package booktabs, with a caption of plain text and a label for ``\\ref``."""
    table = Table(header, rows)
    total = sum(max(length, 8) for length in table.lengths)
    columns = "".join(
        "r" if aside else f"p{{{length / total:.2f}\\linewidth}}" if length > LONG else "l"
        for aside, length in zip(table.right, table.lengths, strict=True)
    )
    body = [f"  {' & '.join(map(escape_latex, line))} \\\\" for line in (header, *rows)]
    rules = [r"  \toprule", body[0], r"  \midrule", *body[1:], r"  \bottomrule"]
    lines = [f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}", *rules, r"\end{tabular}"]
    return float_environment("table", lines, caption, label)


def float_environment(name: str, lines: Sequence[str], caption: str, label: str) -> str:
    """Return a LaTeX ``figure`` or ``table`` with its lines, a caption of plain text, and a label for ``\\ref``."""
    titles = [f"\\caption{{{escape_latex(caption)}}}"] if caption else []
    titles += [f"\\label{{{label}}}"] if label else []
    inside = [r"\centering", *titles, *lines] if name == "table" else [r"\centering", *lines, *titles]
    return "\n".join([f"\\begin{{{name}}}", *(f"  {line}" for line in inside), f"\\end{{{name}}}", ""])


def csv_text(table: pd.DataFrame, *, index: bool = False) -> str:
    """Return a table as CSV whose lines end in a line feed; text with any other end of a line is quoted too."""
    return table.to_csv(index=index, lineterminator=END_OF_LINE).replace(END_OF_LINE, "\n")


def mean_text(values: Sequence[float], form: str) -> str:
    """Return the mean, with the sample standard deviation where there are several values; a dash for none."""
    if not values:
        return "–"
    spread = f" ± {format(statistics.stdev(values), form)}" if len(values) > 1 else ""
    return format(statistics.mean(values), form) + spread


def rank_text(ranks: Sequence[Mapping[Any, Any]]) -> str:
    """Return the ranks of several seeds as text, least to largest.

    If one of them is indeterminate, the interval of tolerances ten times larger and smaller comes first, with the ranks
    at the tolerance itself in parentheses.
    """
    values = [rank["value"] for rank in ranks]
    text = interval_text(min(values), max(values))
    if all(rank["low"] == rank["high"] for rank in ranks):
        return text
    return f"{interval_text(min(rank['low'] for rank in ranks), max(rank['high'] for rank in ranks))} ({text})"


def interval_text(low: float, high: float) -> str:
    """Return an interval of whole numbers as text, or the number where both ends are the same."""
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def terminal(header: Sequence[str], rows: CellRows, *, width: int = 80) -> str:
    """Return a table for a terminal; one that is too wide is turned, or cut into tables that fit, if that helps."""
    table = Table(header, rows)
    first, *others = zip(header, *rows, strict=True)
    flipped = Table(first, others)
    if _width(table) <= width:
        return _drawn(table, width)
    if _width(flipped) <= width:
        return _drawn(flipped, width)
    return "\n\n".join(_drawn(part, width) for part in _cut(table, width))


def _cut(table: Table, width: int) -> list[Table]:
    """Return tables of as many columns as fit, each with the first column."""
    parts = [[0]]
    for place in range(1, len(table.header)):
        if len(parts[-1]) > 1 and sum(table.lengths[each] + 3 for each in (*parts[-1], place)) > width + 3:
            parts.append([0])
        parts[-1].append(place)
    return [
        Table([table.header[place] for place in part], [[row[place] for place in part] for row in table.rows])
        for part in parts
    ]


def _drawn(table: Table, width: int) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, right in zip(table.header, table.right, strict=True):
        shown.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    text = io.StringIO()
    Console(width=width, file=text, force_jupyter=False).print(shown)
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").split("\n"))


def _width(table: Table) -> int:
    """Return the width of a table in which every cell stands on one line."""
    return sum(table.lengths) + 3 * (len(table.header) - 1)
