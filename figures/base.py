"""The base classes of figures and tables, which are computed from saved results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from softmax_bottleneck.files import write_bytes
from softmax_bottleneck.plotting import latex, markdown, save_figure
from softmax_bottleneck.plotting.layout import LEAST_PANEL, Panel, lay_out
from softmax_bottleneck.plotting.style import FORMATS as PICTURES
from softmax_bottleneck.plotting.style import Style
from softmax_bottleneck.tables import escape_markdown, float_environment

from .results import Results

CORPORA = {"demo": "Python's documentation", "ptb": "Penn Treebank", "wt2": "WikiText-2"}
"""Corpora by the first part of a family's name."""


class Entry(ABC):
    """A figure or a table."""

    needs: str = ""
    """The results it reads and the command that writes them."""
    about: str = ""
    """What it shows; by default the docstring of its class."""

    @property
    def title(self) -> str:
        """Return what it shows, as one line."""
        return " ".join((self.about or type(self).__doc__ or "").split())

    @abstractmethod
    def compute(self, results: Results) -> pd.DataFrame:
        """Return the data to show, one row for each number; empty without results."""

    def caption(self, data: pd.DataFrame) -> str:
        """Return the caption."""
        return self.title

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return the missing results, each with the command that writes it."""
        return [] if len(data) else [self.needs]

    @abstractmethod
    def save(self, data: pd.DataFrame, stem: Path, *, formats: Sequence[str], style: Style) -> list[Path]:
        """Write files whose names begin with ``stem``; return their paths.

        Args:
            data: result of `compute`.
            stem: a path without a suffix.
            formats: suffixes of the files: image formats for figures, md for tables, tex (with the caption) and csv for
                both.
            style: rcParams.
        """


class Figure(Entry):
    """A figure. Subclasses compute its data and draw one panel."""

    panel: ClassVar[str] = ""
    """Column with one panel for each of its values; empty for one panel."""
    panel_title: ClassVar[str] = "{}"
    height: ClassVar[float] = 0.62
    """Height of one of several panels, as a multiple of its width; a single panel has the style's height."""
    least_width: ClassVar[float] = LEAST_PANEL
    """Width in inches that a panel beside others needs."""
    share_y: ClassVar[bool] = True
    from_zero: ClassVar[bool] = False
    """Whether the vertical axis begins at zero."""

    @abstractmethod
    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw the rows of one panel; labelled artists go to the legend above all panels."""

    def save(self, data: pd.DataFrame, stem: Path, *, formats: Sequence[str], style: Style) -> list[Path]:
        """Write the picture in every format, its caption as LaTeX and its numbers as CSV; see `Entry.save`."""
        paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in formats if suffix in PICTURES]
        self.write(data, *paths, style=style)
        texts = {
            "tex": float_environment(
                "figure", [f"\\includegraphics{{{stem.name}}}"], self.caption(data), f"fig:{stem.name}"
            ),
            "csv": data.to_csv(index=False, lineterminator="\n"),
        }
        return [*paths, *_write_texts(texts, stem, formats)]

    def write(self, data: pd.DataFrame, *paths: Path, style: Style) -> None:
        """Write the picture to every path."""
        groups = list(data.groupby(self.panel, sort=False)) if self.panel else [("", data)]
        panels = [
            Panel(partial(self.draw, data=rows), self.title_of(value, rows, lone=len(groups) == 1))
            for value, rows in groups
        ]
        with mpl.rc_context(style):
            canvas = Canvas()
            lay_out(
                canvas,
                panels,
                height=self.height,
                least_width=self.least_width,
                share_y=self.share_y,
                from_zero=self.from_zero,
                heading=self.heading(data),
            )
            for path in paths:
                save_figure(canvas, path)

    def title_of(self, value: object, data: pd.DataFrame, *, lone: bool) -> str:
        """Return the title of a panel; a lone panel has none."""
        return "" if lone else self.panel_title.format(value)

    def heading(self, data: pd.DataFrame) -> str:
        """Return the line above the legend."""
        return ""


class FamilyFigure(Figure):
    """A figure with one panel for each family of presets, under the name of its corpus."""

    panel = "family"
    least_width = 2.4

    def title_of(self, value: object, data: pd.DataFrame, *, lone: bool) -> str:
        """Return corpus and family; a lone panel has no title."""
        corpus = CORPORA.get(str(value).partition("-")[0])
        return f"{corpus} ({value})" if corpus and not lone else super().title_of(value, data, lone=lone)


class Table(Entry):
    """A table. Subclasses compute its data, and `rows` lays it out.

    The result of `compute` has the columns ``row``, ``column``, ``kind`` (``""`` for labels, ``"published"`` or
    ``"measured"``), ``text`` (the text of the cell), ``value``, ``spread`` (sample standard deviation over seeds),
    ``low`` and ``high`` (interval of an indeterminate rank), ``seeds``, ``source``.
    """

    kinds_as_rows: bool = False
    """Whether published and measured numbers are in separate rows in place of columns, for tables of many columns."""
    first: str = "model"
    """Heading of the first column."""

    def rows(self, data: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of text."""
        if self.kinds_as_rows:
            data = data[data.groupby(["row", "kind"])["text"].transform("any")]
            name = data["row"] + data["kind"].map(lambda kind: f", {kind}" if kind else "")
            data = data.assign(row=name, heading=data["column"])
        else:
            heading = data["column"] + data["kind"].map(lambda kind: f", {kind}" if kind else "")
            data = data.assign(heading=heading)
        headings, names = (list(dict.fromkeys(data[column])) for column in ("heading", "row"))
        cells = {
            (row, heading): text for row, heading, text in data[["row", "heading", "text"]].itertuples(index=False)
        }
        return [self.first, *headings], [
            [name, *(cells.get((name, heading), "") for heading in headings)] for name in names
        ]

    def save(self, data: pd.DataFrame, stem: Path, *, formats: Sequence[str], style: Style) -> list[Path]:
        """Write the table as Markdown and LaTeX, and its numbers as CSV; see `Entry.save`."""
        header, rows = self.rows(data)
        caption = self.caption(data)
        texts = {
            "md": f"{markdown(header, rows)}\n\n{escape_markdown(caption)}\n",
            "tex": latex(header, rows, caption=caption, label=f"tab:{stem.name}"),
            "csv": data.to_csv(index=False, lineterminator="\n"),
        }
        return _write_texts(texts, stem, formats)


def _write_texts(texts: Mapping[str, str], stem: Path, formats: Sequence[str]) -> list[Path]:
    paths = {suffix: stem.with_name(f"{stem.name}.{suffix}") for suffix in texts if suffix in formats}
    for suffix, path in paths.items():
        write_bytes(path, texts[suffix].encode())
    return list(paths.values())
