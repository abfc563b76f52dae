"""The reports of several sources in one object."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, final

from ..results.base import Results, short_names
from .course import steps_of
from .report import RankReport

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ..results.plotting.layout import Panel


@final
class RankReports(Results[RankReport]):
    """The rank reports of several sources: a sequence, also by name, and a table or a figure of all."""

    def plot(self, ax: Axes | None = None, *, part: str = "raw", log: bool = True, style: str = "screen") -> Axes:
        """Draw the singular values of all reports into one panel, or checkpoints of one run against the step.

        Checkpoints have names such as ``step-300`` or ``checkpoint-300`` in one folder, see `checkpoints`.

        Args:
            ax: axes to draw into, of checkpoints the ranks alone; by default those of a new figure.
            part: as for `RankReport.plot`.
            log: as for `RankReport.plot`.
            style: as for `RankReport.plot`.
        """
        from ..results.plotting.layout import show

        return show(self._panels(part, log), ax, style=style)

    def save(self, *paths: Path, part: str = "raw", log: bool = True, style: str = "screen") -> None:
        """Write the figure of `plot` to every path, which ends in png, pdf or svg."""
        from ..results.plotting.layout import save_panels

        save_panels(self._panels(part, log), *paths, style=style)

    def _panels(self, part: str, log: bool) -> list[Panel]:
        import pandas as pd

        from ..results.plotting.layout import Panel
        from ..results.plotting.spectra import spectrum_panels

        if course := steps_of(report.source["path"] for report in self):
            unit, steps = course
            values = pd.DataFrame([_of_course(report) for report in self], index=steps).sort_index()
            names = [column for column in ("perplexity", "gradient kept", "αReQ of H") if column in values]
            draws: list[Callable[..., None]] = [_draw_ranks, *(partial(_draw_value, name=name) for name in names)]
            label = "epoch" if unit == "epoch" else "step"
            return [Panel(partial(draw, data=values, label=label)) for draw in draws]
        names = short_names(report.name for report in self)
        curves = [report.spectrum.curves(name, report.limits) for name, report in zip(names, self, strict=True)]
        return spectrum_panels(pd.concat(curves), part=part, log=log)


def _of_course(report: RankReport) -> dict[str, float | None]:
    """Return the values of one checkpoint that a figure draws."""
    shown = report.columns() | {"effective rank": report.summary()["effective_rank_1e-3"]}
    for name, rank in (("rank", report.rank), ("row-centred rank", report.rank_centered)):
        shown |= {name: rank.value, f"{name}, low": rank.low, f"{name}, high": rank.high}
    return shown


def _draw_ranks(ax: Axes, data: pd.DataFrame, label: str) -> None:
    """Draw ranks against the step; bars show the interval of a rank."""
    from ..results.plotting.looks import BLACK, BLUE, GREEN, ORANGE, RED, SKY

    for name, color, marker in (
        ("rank", BLACK, "o"), ("row-centred rank", BLUE, "D"), ("effective rank", ORANGE, "s"),
        ("effective rank of H", GREEN, "^"), ("effective rank of W", RED, "v"), ("RankMe of H", SKY, "x"),
    ):  # fmt: skip
        if name in data:
            ax.plot(data.index, data[name].astype(float), color=color, marker=marker, label=name)
        if f"{name}, low" in data:
            ax.vlines(data.index, data[f"{name}, low"], data[f"{name}, high"], color=color, linewidth=0.8)
    ax.set(xlabel=label, ylabel="rank")
    ax.set_ylim(bottom=0)


def _draw_value(ax: Axes, data: pd.DataFrame, label: str, name: str) -> None:
    """Draw one value against the step."""
    ax.plot(data.index, data[name].astype(float), color="black", marker="o")
    ax.set(xlabel=label, ylabel=name)
    ax.update_datalim([(data.index[0], 0.0)])  # so that the margin is a share of the whole height
    ax.autoscale_view()
    ax.set_ylim(bottom=0)
