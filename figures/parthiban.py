"""Parthiban et al. 2021, as a figure: perplexity against rank, for both ways to start averaging."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.results.plotting import HEADS

from .base import ENTRIES, figure
from .results import Results

TRIGGERS = {"NT-ASGD": "parthiban-nt-asgd", "ET-ASGD": "parthiban-et-asgd"}
"""Table of each way to start averaging."""
LEFT = ("sigsoftmax", "mos")
"""Heads whose label is left of their point, because another point is near."""
CORPORA = {"PTB": "Penn Treebank", "WT2": "WikiText-2"}
HEADS_BY_NAME = {
    "Softmax": "softmax",
    "MoC": "moc",
    "MoS": "mos",
    "Sigsoftmax": "sigsoftmax",
    "Generalized Sigsoftmax": "gss",
    "LMS-PLIF": "lms-plif",
}


def rank_and_perplexity(results: Results) -> pd.DataFrame:
    """Return ``panel`` (the corpus), ``trigger``, ``head``, ``rank`` and ``perplexity``."""
    parts = []
    for trigger, table in TRIGGERS.items():
        data = ENTRIES[table].compute(results)
        data = data[(data["kind"] == "published") & data["value"].notna()]
        metric, corpus = (data["column"].str.split(", ").str[part] for part in (0, 1))
        wide = data.assign(metric=metric, panel=corpus.map(CORPORA)).pivot_table(
            index=["row", "panel"], columns="metric", values="value", sort=False
        )
        parts.append(wide.reset_index().assign(trigger=trigger))
    data = pd.concat(parts, ignore_index=True)
    data["head"] = data["row"].str.partition(",")[0].map(HEADS_BY_NAME)
    return data.dropna(subset=["rank", "perplexity"])[["panel", "trigger", "head", "rank", "perplexity"]]


@figure("parthiban-figure", data=rank_and_perplexity, panel="panel", layout={"share_y": False, "height": 0.8})
def parthiban(ax: Axes, data: pd.DataFrame) -> None:
    """Test perplexity against the rank of the log-probability matrix, published: hollow under NT-ASGD, filled under
    ET-ASGD, a grey line from one to the other; heads without a published rank are left out (Parthiban et al.
    2021). Rank alone does not order perplexities.
    """
    for head, rows in data.groupby("head", sort=False):
        look = HEADS[str(head)]
        ax.plot(rows["rank"], rows["perplexity"], color="0.7", zorder=1)
        for trigger, rank, perplexity in rows[["trigger", "rank", "perplexity"]].itertuples(index=False):
            face = look.color if trigger == "ET-ASGD" else "white"
            ax.plot(rank, perplexity, look.marker, color=look.color, markerfacecolor=face, zorder=3)
        first = rows.iloc[0]
        place, left = (first["rank"], first["perplexity"]), head in LEFT
        text: dict[str, Any] = {
            "xytext": (-6 if left else 6, 0),
            "textcoords": "offset points",
            "ha": "right" if left else "left",
        }
        ax.annotate(look.label, place, va="center", color=look.color, fontsize="small", **text)
    for trigger, face in (("NT-ASGD", "white"), ("ET-ASGD", "0.3")):
        ax.plot([], [], "o", color="0.3", markerfacecolor=face, label=trigger)
    ax.set(xscale="log", xlabel="rank", ylabel="test perplexity")
    ax.margins(0.14)
