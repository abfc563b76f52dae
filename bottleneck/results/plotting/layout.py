"""Panels of one figure, with one legend in the place of a missing panel or above all panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
import seaborn
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from .looks import plain
from .style import find_style, save_figure

LEAST_PANEL = 1.8
"""Width in inches that a panel needs, unless it is given: narrower panels move to further rows."""
LEGEND = 1.7
"""Height of a row of the legend, in sizes of its type."""
HEADROOM = 1.03
"""Top of an axis that begins at zero, over that of the data with its margin: no marker is cut."""


class Panel(NamedTuple):
    """One panel of a figure."""

    draw: Callable[[Axes], None]
    """Draws into the panel's axes; labelled artists go to the legend of all panels."""
    title: str = ""


def lay_out(
    figure: Figure,
    panels: Sequence[Panel],
    *,
    height: float = 0.62,
    least_width: float = LEAST_PANEL,
    share_y: bool = True,
    same_x: bool = False,
    from_zero: bool = False,
    heading: str = "",
) -> list[Axes]:
    """Draw the panels into an empty figure in the width of the current style, and return their axes.

    Args:
        figure: changed in place.
        panels: from left to right, then in further rows.
        height: of a panel beside others, in its widths; one with a row of its own has the style's.
        least_width: in inches, that a panel beside others needs.
        share_y: whether all panels have one vertical axis.
        same_x: whether all horizontal axes have the same limits.
        from_zero: whether the vertical axis begins at zero.
        heading: text above the legend.
    """
    width, lone = mpl.rcParams["figure.figsize"]
    rows = math.ceil(len(panels) / max(1, int(width // least_width)))
    columns = math.ceil(len(panels) / rows)
    figure.set_size_inches(width, rows * (height * width / columns if columns > 1 else lone))
    axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
    shown = list(axes.flat)[: len(panels)]
    for ax, panel in zip(shown, panels, strict=True):
        panel.draw(ax)
        ax.set_title(plain(panel.title), fontsize=mpl.rcParams["legend.fontsize" if columns > 2 else "axes.titlesize"])
    for ax in axes[:, 1:].flat if share_y else ():
        ax.set_ylabel("")
        ax.tick_params(labelleft=False)
    tops = [HEADROOM * ax.get_ylim()[1] for ax in shown]
    for ax, top in zip(shown, tops, strict=True) if from_zero else ():
        ax.set_ylim(0, top)  # only now: a limit ends the scaling of all panels that share the axis
    limits = [limit for ax in shown for limit in ax.get_xlim()]
    for ax in shown if same_x else ():
        ax.set_xlim(min(limits), max(limits))
    empty = list(axes.flat)[len(panels) :]
    for ax in empty:
        ax.set_axis_off()
    _legend(figure, shown, heading, place=empty[0] if empty else None)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once: each format would lay it out anew, from where it was
    return shown


def show(panels: Sequence[Panel], ax: Axes | str | Path | None = None, *, style: str = "screen") -> Axes:
    """Draw the first panel into axes, or all panels into a file or a new figure that a notebook or a window shows.

    Returns:
        ``ax``, or the first axes of the new figure.
    """
    if isinstance(ax, str | Path):
        return save_panels(panels, Path(ax), style=style)
    if ax is None:
        from matplotlib import pyplot as plt

        rc = find_style(style)
        figure = plt.figure(layout="constrained", dpi=rc["figure.dpi"])  # loads the backend, with its own settings
        with plt.rc_context(rc):
            return lay_out(figure, panels, height=0.85, share_y=False)[0]
    panels[0].draw(ax)
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


def save_panels(panels: Sequence[Panel], *paths: Path, style: str = "screen") -> Axes:
    """Write a figure of all panels to every path, which ends in png, pdf or svg, and return its first axes."""
    with mpl.rc_context(find_style(style)):
        figure = Figure()
        first, *_ = lay_out(figure, panels, height=0.85, share_y=False)
        for path in paths:
            save_figure(figure, path)
    return first


def _legend(figure: Figure, axes: Sequence[Axes], heading: str, place: Axes | None) -> None:
    """Put one legend into empty axes, or above all panels, where it makes the figure higher and covers nothing."""
    handles: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
        if legend := ax.get_legend():
            legend.remove()
    if handles and place is not None:
        place.legend(list(handles.values()), list(handles), loc="center", title=plain(heading) or None)
    elif handles:
        width, height = figure.get_size_inches()
        letter = FontProperties(size=mpl.rcParams["legend.fontsize"]).get_size_in_points() / 72
        widths = [letter * (0.6 * len(label) + 5) for label in handles]
        columns = len(handles) if sum(widths) < width else max(1, int(width / max(widths)))
        rows = math.ceil(len(handles) / columns) + bool(heading)
        figure.set_size_inches(width, height + letter * (LEGEND * rows + 0.5))
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper center",
            ncols=columns,
            title=plain(heading) or None,
        )


def draw_means(ax: Axes, data: pd.DataFrame, x: str, y: str, **line: Any) -> None:
    """Draw the mean of repeated measurements against x, with a band of one standard deviation on either side.

    ``data`` has a row for each measurement; rows without y are left out. ``line`` are arguments of `Axes.plot`.
    """
    seaborn.lineplot(data.dropna(subset=[y]), x=x, y=y, errorbar="sd", err_kws={"linewidth": 0}, ax=ax, **line)
    ax.set(xlabel="", ylabel="")
