"""Tables as Markdown and LaTeX, with every character escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

Rows = Sequence[Sequence[str]]

LONG = 60
"""Largest number of characters of a cell that Markdown aligns; LaTeX breaks the lines of longer ones."""

MARKDOWN = str.maketrans(
    {**{char: f"\\{char}" for char in "\\`*_[]|~"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " "}
)
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
        "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
        "|": r"\textbar{}", "\n": " ", "±": r"$\pm$", "×": r"$\times$", "–": "--", "−": "$-$", "†": r"\textdagger{}",
        "σ": r"$\sigma$", "α": r"$\alpha$", "ε": r"$\varepsilon$", "≥": r"$\geq$", "≤": r"$\leq$", "·": r"$\cdot$",
        "₁": "$_1$", "⁵": "$^5$", "⁶": "$^6$", "∞": r"$\infty$", "‖": r"$\|$",
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


def right_columns(header: Sequence[str], rows: Rows) -> list[bool]:
    """Return whether each column is aligned to the right: all but the first, if all its cells are numbers."""
    columns = [[row[column] for row in rows] for column in range(len(header))]
    return [place > 0 and all(map(is_number, column)) for place, column in enumerate(columns)]


def _widths(header: Sequence[str], rows: Rows) -> list[tuple[bool, float]]:
    """Return for each column whether it is aligned to the right, and its share of the line if its text is long."""
    longest = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    shares = [length if length > LONG else 0 for length in longest]
    total = sum(max(length, 8) for length in longest)
    aligned = zip(right_columns(header, rows), shares, strict=True)
    return [(right, 0.0 if right else share / total) for right, share in aligned]


def markdown(header: Sequence[str], rows: Rows) -> str:
    """Return an aligned Markdown table; columns of numbers are aligned to the right.

    Args:
        header: names of the columns.
        rows: cells as text, one for each column.
    """
    right = right_columns(header, rows)
    lines = [[escape_markdown(cell) for cell in line] for line in (header, *rows)]
    lengths = ([len(line[column]) for line in lines] for column in range(len(header)))
    widths = [max([2, *(length for length in column if length <= LONG)]) for column in lengths]
    lines.insert(
        1, [f"{'-' * (width - 1)}:" if aside else "-" * width for width, aside in zip(widths, right, strict=True)]
    )
    return "\n".join(
        "| "
        + " | ".join(
            text.rjust(width) if aside else text.ljust(width)
            for text, width, aside in zip(line, widths, right, strict=True)
        )
        + " |"
        for line in lines
    )


def latex(header: Sequence[str], rows: Rows, *, caption: str = "", label: str = "") -> str:
    """Return a LaTeX table for the package booktabs.

    Args:
        header: names of the columns.
        rows: cells as text, one for each column.
        caption: plain text.
        label: label for ``\\ref``.
    """
    columns = "".join(
        "r" if aside else f"p{{{wide:.2f}\\linewidth}}" if wide else "l" for aside, wide in _widths(header, rows)
    )
    body = [" & ".join(map(escape_latex, line)) + r" \\" for line in (header, *rows)]
    lines = [
        f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"  \toprule",
        f"  {body[0]}",
        r"  \midrule",
        *(f"  {line}" for line in body[1:]),
        r"  \bottomrule",
        r"\end{tabular}",
    ]
    return float_environment("table", lines, caption, label)


def float_environment(name: str, lines: Sequence[str], caption: str, label: str) -> str:
    """Return a LaTeX ``figure`` or ``table`` with its lines, a caption of plain text, and a label for ``\\ref``."""
    titles = [f"\\caption{{{escape_latex(caption)}}}"] if caption else []
    titles += [f"\\label{{{label}}}"] if label else []
    inside = [r"\centering", *titles, *lines] if name == "table" else [r"\centering", *lines, *titles]
    return "\n".join([f"\\begin{{{name}}}", *(f"  {line}" for line in inside), f"\\end{{{name}}}", ""])
