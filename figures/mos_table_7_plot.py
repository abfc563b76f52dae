"""Yang et al. 2018, table 7, drawn: rank and perplexity against the number of softmaxes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import final

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import HEADS
from softmax_bottleneck.plotting.looks import DASHES

from .base import Figure
from .published_tables import MOS_TABLE_7
from .results import Results

LABELS = {"rank": "rank", "perplexity": "perplexity, % of K = 3"}
PUBLISHED = "0.45"
FULL_RANK = 10_000


@final
class MoSTable7Plot(Figure):
    """Rank of the log-probability matrix and test perplexity on Penn Treebank by number K of softmaxes in MoS (Yang
    et al. 2018, table 7): published (grey, hollow) and, where measured, this repository's, also of small models (blue,
    filled; thin bars from the lowest to the highest rank within the interval of tolerances). Perplexities are shares of
    that with K = 3.
    """

    panel, panel_title = "column", ""
    share_y = False
    height = 0.75

    def compute(self, results: Results) -> pd.DataFrame:
        """Return the numbers of table 7; see `Table`."""
        data = MOS_TABLE_7.compute(results)
        softmaxes = data["row"].str.extract(r"(?:^|K = )(\d+)", expand=False).astype(int)
        size = data["row"].str.extract(r"(, d = \d+)", expand=False).fillna("")
        data = data.assign(K=softmaxes, series="MoS" + size + ", " + data["kind"])
        of_three = data[data["K"] == 3].set_index(["series", "column"])["value"]
        share = [
            100 * value / of_three.get((series, column), math.nan) if column == "perplexity" else value
            for series, column, value in data[["series", "column", "value"]].itertuples(index=False)
        ]
        return data.assign(drawn=share)

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return the numbers of components without a measurement."""
        return MOS_TABLE_7.missing(data)

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one of the two columns."""
        column = data["column"].iloc[0]
        look = HEADS["mos"]
        for series, rows in data[data["value"].notna()].groupby("series", sort=False):
            name = str(series)
            is_measured = rows["kind"].iloc[0] == "measured"
            color = look.color if is_measured else PUBLISHED
            shown = replace(look, label=name, color=color, dashes=DASHES[2] if "d =" in name else look.dashes)
            style = shown.line(marker=look.marker, markerfacecolor=color if is_measured else "white")
            ax.plot(rows["K"], rows["drawn"].astype(float), **style)
            if is_measured and column == "rank":
                ax.vlines(rows["K"], rows["low"].astype(float), rows["high"].astype(float), color=color, linewidth=0.8)
        ax.set_xticks(sorted(data["K"].unique()))
        ax.set_xlabel("number $K$ of softmaxes")
        ax.set_ylabel(LABELS[column])
        if column == "rank":
            ax.axhline(FULL_RANK, color="0.5", linewidth=0.8, linestyle=":")
            ax.text(data["K"].min(), FULL_RANK, "full rank", ha="left", va="bottom", color="0.4", fontsize="small")
            ax.set_ylim(0, 1.09 * FULL_RANK)
            ax.yaxis.set_major_formatter("{x:,.0f}")
