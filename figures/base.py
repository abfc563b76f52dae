"""Figures and tables: functions that compute or draw, registered under a name by `figure` and `table`."""

from __future__ import annotations

import inspect
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from softmax_bottleneck.core.files import write_bytes
from softmax_bottleneck.results.plotting import Look, latex, looks, markdown, save_figure
from softmax_bottleneck.results.plotting.layout import Panel, lay_out
from softmax_bottleneck.results.plotting.style import FORMATS as PICTURES
from softmax_bottleneck.results.plotting.style import Style
from softmax_bottleneck.results.tables import csv_text, escape_markdown, float_environment

from .results import SavedResults

COLUMNS = ["row", "column", "kind", "text", "value", "spread", "low", "high", "seeds", "source"]
"""Columns of a table's data; see `TableEntry`."""
CORPORA = {"demo": "Python's docs", "ptb": "Penn Treebank", "wt2": "WikiText-2"}
"""Corpora by the first part of a family's name."""
Compute = Callable[[SavedResults], pd.DataFrame]
Draw = Callable[[Axes, pd.DataFrame], None]
Cells = Callable[[SavedResults], Iterable[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Entry(ABC):
    """A figure or a table."""

    compute: Compute
    """Returns the data to show, one row for each number; empty without results."""
    title: str
    """What it shows, as one line."""
    needs: str = ""
    """The results it reads and the command that writes them."""
    lacks: Callable[[pd.DataFrame], list[str]] | None = None
    """Returns the missing results of some data; by default ``needs`` if there is no data."""
    describe: Callable[[pd.DataFrame], str] | None = None
    """Returns the sentences of the caption that depend on the data."""

    def caption(self, data: pd.DataFrame) -> str:
        """Return the caption."""
        return f"{self.title} {self.describe(data)}" if self.describe else self.title

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return the missing results, each with the command that writes it."""
        if self.lacks is not None:
            return self.lacks(data)
        return [] if len(data) else [self.needs]

    def save(self, data: pd.DataFrame, stem: Path, *, formats: Sequence[str], style: Style) -> list[Path]:
        """Write the data in some formats to ``stem`` with their suffixes; return the paths.

        Images are of figures alone, md of tables alone; tex, with the caption, and csv are of both.
        """
        texts = {**self.texts(data, stem.name), "csv": csv_text(data)}
        paths = {suffix: stem.with_name(f"{stem.name}.{suffix}") for suffix in formats}
        pictures = [paths[suffix] for suffix in PICTURES if suffix in paths and isinstance(self, Figure)]
        if isinstance(self, Figure) and pictures:
            with mpl.rc_context(style):
                canvas = self.picture(data)
                for path in pictures:
                    save_figure(canvas, path)
        for suffix in texts.keys() & paths.keys():
            write_bytes(paths[suffix], texts[suffix].encode())
        return [*pictures, *(paths[suffix] for suffix in texts if suffix in paths)]

    @abstractmethod
    def texts(self, data: pd.DataFrame, name: str) -> Mapping[str, str]:
        """Return the contents of its text files by suffix, without csv."""


@final
@dataclass(frozen=True, kw_only=True)
class Figure(Entry):
    """A figure of one or more panels."""

    draw: Draw
    """Draws the rows of one panel; labelled artists go to the legend above all panels."""
    panel: str = ""
    """Column with one panel for each of its values; empty for one panel."""
    panel_title: Callable[[Any, pd.DataFrame], str] = lambda value, rows: str(value)
    """Returns the title of a panel from the value and its rows."""
    lone_title: bool = False
    """Whether a lone panel has its title too."""
    heading: Callable[[pd.DataFrame], str] = lambda data: ""
    """Returns the line above the legend."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `lay_out`."""

    def picture(self, data: pd.DataFrame) -> Canvas:
        """Draw all panels in the current style."""
        groups = list(data.groupby(self.panel, sort=False)) if self.panel else [("", data)]
        is_titled = self.lone_title or len(groups) > 1

        def panel(value: object, rows: pd.DataFrame) -> Panel:
            return Panel(lambda ax: self.draw(ax, rows), self.panel_title(value, rows) if is_titled else "")

        canvas, panels = Canvas(), [panel(value, rows) for value, rows in groups]
        lay_out(canvas, panels, heading=self.heading(data), **self.layout)
        return canvas

    def texts(self, data: pd.DataFrame, name: str) -> Mapping[str, str]:
        """Return LaTeX that includes the picture."""
        picture = [f"\\includegraphics{{{name}}}"]
        return {"tex": float_environment("figure", picture, self.caption(data), f"fig:{name}")}


@final
@dataclass(frozen=True, kw_only=True)
class TableEntry(Entry):
    """A table, laid out by `rows`.

    The result of `compute` has the columns ``row``, ``column``, ``kind`` (``""`` for labels, ``"published"`` or
    ``"measured"``), ``text`` (the text of the cell), ``value``, ``spread`` (sample standard deviation over seeds),
    ``low`` and ``high`` (interval of an indeterminate rank), ``seeds``, ``source``.
    """

    first: str = "model"
    """Heading of the first column."""

    def rows(self, data: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of text, "–" for a cell without a number.

        Published and measured numbers are in columns of their own where every row has both, otherwise in rows of
        their own.
        """
        aside = "column" if data["text"].all() else "row"
        data = data.assign(**{aside: data[aside] + data["kind"].map(lambda kind: f", {kind}" if kind else "")})
        names, headings = (
            list(dict.fromkeys(data[axis][data.groupby(axis)["text"].transform("any")])) for axis in ("row", "column")
        )
        cells = data[data["text"] != ""].set_index(["row", "column"])["text"].to_dict()
        return [self.first, *headings], [[name, *(cells.get((name, each), "–") for each in headings)] for name in names]

    def texts(self, data: pd.DataFrame, name: str) -> Mapping[str, str]:
        """Return the table as Markdown and LaTeX."""
        header, rows = self.rows(data)
        caption = self.caption(data)
        return {
            "md": f"{markdown(header, rows)}\n\n{escape_markdown(caption)}\n",
            "tex": latex(header, rows, caption=caption, label=f"tab:{name}"),
        }


ENTRIES: dict[str, Entry] = {}
"""All figures and tables in the order of their registration."""


def figure(name: str, *, data: Compute, **settings: Any) -> Callable[[Draw], Draw]:
    """Register a function that draws one panel of ``data`` as a figure; its docstring is the caption."""

    def register(draw: Draw) -> Draw:
        ENTRIES[name] = Figure(compute=data, draw=draw, title=docstring(draw), **settings)
        return draw

    return register


def table(name: str, **settings: Any) -> Callable[[Cells], Cells]:
    """Register a function that yields the cells of a table; its docstring is the caption."""

    def register(cells: Cells) -> Cells:
        ENTRIES[name] = table_of(cells, title=docstring(cells), **settings)
        return cells

    return register


def table_of(cells: Cells, **settings: Any) -> TableEntry:
    """Return a table of the cells that a function yields."""
    return TableEntry(compute=lambda results: pd.DataFrame([*cells(results)], columns=COLUMNS), **settings)


def stacked(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return frames below each other; an empty frame for none."""
    return pd.concat([pd.DataFrame(), *frames])


def by_model(data: pd.DataFrame) -> Iterator[tuple[Look, pd.DataFrame]]:
    """Yield the look and the rows of each model, in the order in which they are drawn."""
    for model, look in looks(dict.fromkeys(data["model"])).items():
        yield look, data[data["model"] == model]


def family_panels(*, share_y: bool = True) -> dict[str, Any]:
    """Return the settings of a figure with one panel for each family of presets, under the name of its corpus."""

    def title(family: str, rows: pd.DataFrame) -> str:
        corpus = CORPORA.get(family.partition("-")[0])
        return f"{corpus} ({family})" if corpus else family

    return {"panel": "family", "panel_title": title, "layout": {"least_width": 2.3, "height": 1.0, "share_y": share_y}}


def cell(row: str, column: str, kind: str, text: str, **more: Any) -> dict[str, Any]:
    """Return one number of a table as a row of its data."""
    return {"row": row, "column": column, "kind": kind, "text": text, **more}


def mean_and_spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean and the sample standard deviation of values as fields of a cell."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"value": statistics.mean(values) if values else None, "spread": spread}


def docstring(function: Callable[..., Any]) -> str:
    """Return the docstring of a function as one line."""
    return " ".join((inspect.getdoc(function) or "").split())
