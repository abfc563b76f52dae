"""The reports of several sources in one object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final, overload

from ..results.base import frame, short_names, table
from ..results.tables import TableText, latex
from .report import RankReport

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_STEP = re.compile(r"(?P<run>.*?)(?P<unit>step|checkpoint|epoch)[-_](?P<number>\d+)(/|\.\w+)?")


@final
class RankReports(Sequence[RankReport]):
    """The rank reports of several sources: a sequence, also by name, and a table or a figure of all."""

    def __init__(self, reports: Iterable[RankReport]) -> None:
        self._reports = tuple(reports)

    def __len__(self) -> int:
        return len(self._reports)

    @overload
    def __getitem__(self, place: int | str) -> RankReport: ...
    @overload
    def __getitem__(self, place: slice) -> RankReports: ...
    def __getitem__(self, place: int | str | slice) -> RankReport | RankReports:
        """Return a report by its place or its name, or several by their places."""
        if isinstance(place, str):
            return {report.name: report for report in self._reports}[place]
        return RankReports(self._reports[place]) if isinstance(place, slice) else self._reports[place]

    def table(self, *, columns: Sequence[str] | None = None, format: str = "markdown") -> TableText:  # noqa: A002
        """Return a row for each report; see `results.table`."""
        return table(self, columns=columns, format=format)

    def to_markdown(self, *, columns: Sequence[str] | None = None) -> str:
        """Return the table as Markdown."""
        return str(self.table(columns=columns))

    def to_latex(self, *, columns: Sequence[str] | None = None, caption: str = "", label: str = "") -> str:
        """Return the table for LaTeX's package booktabs."""
        shown = self.table(columns=columns)
        return latex(shown.header, shown.rows, caption=caption, label=label)

    def to_frame(self, *, full: bool = False) -> pd.DataFrame:
        """Return a row of numbers for each report; see `results.frame`."""
        return frame(self, full=full)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, as ``bottleneck rank`` writes them for several sources."""
        return {"results": [report.to_dict() for report in self]}

    def __repr__(self) -> str:
        """Return the table."""
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def plot(self, ax: Axes | None = None, *, part: str = "raw", log: bool = True, style: str = "screen") -> Axes:
        """Draw the singular values of all reports into one panel, or of checkpoints of one run the rank at each step.

        Checkpoints are folders of one parent with names such as ``step-300`` or ``checkpoint-300``.

        Args:
            ax: axes to draw into; by default those of a new figure.
            part: as for `RankReport.plot`.
            log: as for `RankReport.plot`.
            style: as for `RankReport.plot`.
        """
        import pandas as pd

        from ..results.plotting.layout import Panel, show
        from ..results.plotting.spectra import spectrum_panels

        if course := _course(self):
            return show([Panel(lambda ax: _draw_course(ax, *course))], ax, style=style)
        names = short_names(report.name for report in self)
        curves = [report.spectrum.curves(name, report.limits) for name, report in zip(names, self, strict=True)]
        return show(spectrum_panels(pd.concat(curves), part=part, log=log), ax, style=style)


def _course(reports: Iterable[RankReport]) -> tuple[str, dict[int, RankReport]] | None:
    """Return the unit and the reports by step, ascending, if they are those of checkpoints of one run."""
    matches = {_STEP.fullmatch(str(report.source["path"])): report for report in reports}
    places = {(match["run"], match["unit"]) if match else None for match in matches}
    if len(matches) < 2 or len(places) > 1 or None in matches:
        return None
    steps = {int(match["number"]): report for match, report in matches.items() if match}
    (place,) = places
    assert place is not None
    return place[1], dict(sorted(steps.items()))


def _draw_course(ax: Axes, unit: str, reports: Mapping[int, RankReport]) -> None:
    """Draw rank, row-centred rank and effective rank against the step; bars show the interval of a rank."""
    from ..results.plotting.looks import BLACK, BLUE, ORANGE

    steps = list(reports)
    for name, color, marker in (("rank", BLACK, "o"), ("row-centred rank", BLUE, "D")):
        ranks = [report.rank if name == "rank" else report.rank_centered for report in reports.values()]
        ax.plot(steps, [rank.value for rank in ranks], color=color, marker=marker, label=name)
        ax.vlines(steps, [rank.low for rank in ranks], [rank.high for rank in ranks], color=color, linewidth=0.8)
    effective = [report.summary()["effective_rank_1e-3"] for report in reports.values()]
    known = [float("nan") if count is None else count for count in effective]
    ax.plot(steps, known, color=ORANGE, marker="s", label="effective rank (99.9 %)")
    ax.set(xlabel="epoch" if unit == "epoch" else "step", ylabel="rank")
    ax.set_ylim(bottom=0)
