"""What a figure and a table are: computed from saved results, drawn or written from what was computed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties

from softmax_bottleneck.files import write_bytes
from softmax_bottleneck.plotting import latex, markdown, plain, save_figure
from softmax_bottleneck.plotting.style import FORMATS as PICTURES
from softmax_bottleneck.plotting.style import Style
from softmax_bottleneck.plotting.tables import escape_markdown, float_environment

from .results import Results

LEAST_PANEL = 1.8
"""Inches below which a panel moves to a row of its own."""
LEGEND = 1.7
"""Height of a row of the legend, in sizes of its type."""


class Entry(ABC):
    """A figure or a table; a final class's docstring is what stands under it."""

    needs: ClassVar[str] = ""
    """What it reads and which command writes it."""

    @property
    def title(self) -> str:
        """Return what it shows, with its source: the docstring."""
        return " ".join((type(self).__doc__ or "").split())

    @abstractmethod
    def compute(self, results: Results) -> pd.DataFrame:
        """Return what is shown, one row a number; empty where there are no results."""

    def caption(self, data: pd.DataFrame) -> str:
        """Return what stands under it."""
        return self.title

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return what it would show and no result has, each with the command that makes it."""
        return [] if len(data) else [self.needs]

    @abstractmethod
    def save(self, data: pd.DataFrame, stem: Path, *, formats: Sequence[str], style: Style) -> list[Path]:
        """Write files whose names begin with ``stem``; return their paths.

        Args:
            data: what `compute` returned.
            stem: a path without a suffix.
            formats: suffixes: pictures are of figures, md is of tables; tex (with the caption) and csv are of both.
            style: rcParams.
        """


class Figure(Entry):
    """A figure. Its subclasses say what is computed and how one panel of it is drawn."""

    panel: ClassVar[str] = ""
    """The column whose values have a panel each; empty for one panel."""
    panel_title: ClassVar[str] = "{}"
    height: ClassVar[float] = 0.62
    """Of one panel beside others, in its widths; one with a row of its own has the style's."""
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
        panels = list(data.groupby(self.panel, sort=False)) if self.panel else [("", data)]
        with mpl.rc_context(style):
            width, lone = mpl.rcParams["figure.figsize"]
            rows = math.ceil(len(panels) / max(1, int(width // LEAST_PANEL)))
            columns = math.ceil(len(panels) / rows)
            each = self.height * width / columns if columns > 1 else lone
            size = (width, rows * each)
            figure = Canvas(figsize=size)
            axes = figure.subplots(rows, columns, squeeze=False, sharey=self.share_y)
            for ax, (value, rows_of_panel) in zip(axes.flat, panels, strict=False):
                self.draw(ax, rows_of_panel)
                if len(panels) > 1:
                    ax.set_title(plain(self.panel_title.format(value)))
            for ax in axes[:, 1:].flat if self.share_y else ():
                ax.set_ylabel("")
                ax.tick_params(labelleft=False)
            for ax in axes.flat[: len(panels)] if self.from_zero else ():
                ax.set_ylim(bottom=0)  # only now: a limit ends the scaling of all panels that share the axis
            for ax in axes.flat[len(panels) :]:
                ax.set_visible(False)
            _legend(figure, list(axes.flat))
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once: each format would lay it out anew, from where it was
            for path in paths:
                save_figure(figure, path)


def _legend(figure: Canvas, axes: Sequence[Axes]) -> None:
    """Put one legend above all panels, where it covers nothing, and make the figure higher by it."""
    found: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
        if legend := ax.get_legend():
            legend.remove()
    if found:
        width, height = figure.get_size_inches()
        letter = FontProperties(size=mpl.rcParams["legend.fontsize"]).get_size_in_points() / 72
        columns = max(1, min(len(found), int(width / (letter * (0.6 * max(map(len, found)) + 5)))))
        rows = math.ceil(len(found) / columns)
        figure.set_size_inches(width, height + letter * (LEGEND * rows + 0.5))
        figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=columns)


class Table(Entry):
    """A table. Its subclasses say what is computed, and `rows` how it is laid out.

    What `compute` returns has the columns ``row``, ``column``, ``kind`` (``""`` for labels, ``"published"`` or
    ``"measured"``), ``text`` (what is shown), ``value``, ``spread`` (sample standard deviation over seeds), ``low`` and
    ``high`` (of a rank that is not determinate), ``seeds``, ``source``.
    """

    kinds_as_rows: ClassVar[bool] = False
    """Whether published and measured numbers stand below instead of beside each other, for tables of many columns."""
    first: ClassVar[str] = "model"
    """Heading of the first column."""

    def rows(self, data: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of text."""
        if self.kinds_as_rows:
            data = data[(data["kind"] != "measured") | data.groupby(["row", "kind"])["text"].transform("any")]
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
