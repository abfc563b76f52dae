"""Parthiban et al. 2021, drawn: perplexity against rank, under both ways to start averaging."""

from __future__ import annotations

from typing import final

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import looks

from .base import Figure
from .parthiban_et_asgd import ParthibanETASGD
from .parthiban_nt_asgd import ParthibanNTASGD
from .results import Results

TRIGGERS = {"NT-ASGD": ParthibanNTASGD, "ET-ASGD": ParthibanETASGD}
MIDDLE = 2000
"""Labels stand right of points of lower rank, and left of others."""
CORPORA = {"PTB": "Penn Treebank", "WT2": "WikiText-2"}


@final
class ParthibanFigure(Figure):
    """Test perplexity against the rank of the log-probability matrix, published: hollow under NT-ASGD, filled under
    ET-ASGD, a grey line from one to the other; heads without a published rank are left out (Parthiban et al.
    2021). Rank alone does not order perplexities.
    """

    panel = "panel"
    share_y = False
    height = 0.8

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``panel`` (the corpus), ``trigger``, ``head``, ``rank`` and ``perplexity``."""
        found = []
        for trigger, table in TRIGGERS.items():
            data = table().compute(results)
            data = data[(data["kind"] == "published") & data["value"].notna()]
            metric, corpus = (data["column"].str.split(", ").str[part] for part in (0, 1))
            wide = data.assign(metric=metric, panel=corpus.map(CORPORA)).pivot_table(
                index=["row", "panel"], columns="metric", values="value", sort=False
            )
            found.append(wide.reset_index().assign(trigger=trigger))
        data = pd.concat(found, ignore_index=True).rename(columns={"row": "name"})
        return data.dropna(subset=["rank", "perplexity"])[["panel", "trigger", "name", "rank", "perplexity"]]

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one corpus, one point a head and trigger."""
        heads = {name: HEADS_BY_NAME[name.partition(",")[0]] for name in dict.fromkeys(data["name"])}
        for name, look in zip(heads, looks(heads.values()).values(), strict=True):
            rows = data[data["name"] == name]
            ax.plot(rows["rank"], rows["perplexity"], color="0.7", zorder=1)
            for trigger, rank, perplexity in rows[["trigger", "rank", "perplexity"]].itertuples(index=False):
                face = look.color if trigger == "ET-ASGD" else "white"
                ax.plot(rank, perplexity, look.marker, color=look.color, markerfacecolor=face, zorder=3)
            last = rows.iloc[-1]
            aside = {"xytext": (6, 0), "ha": "left"} if last["rank"] < MIDDLE else {"xytext": (-6, 0), "ha": "right"}
            place = (last["rank"], last["perplexity"])
            ax.annotate(look.label, place, textcoords="offset points", va="center", color=look.color, **aside)
        for trigger, face in (("NT-ASGD", "white"), ("ET-ASGD", "0.3")):
            ax.plot([], [], "o", color="0.3", markerfacecolor=face, label=trigger)
        ax.set_xscale("log")
        ax.margins(0.12)
        ax.set_xlabel("rank")
        ax.set_ylabel("test perplexity")


HEADS_BY_NAME = {
    "Softmax": "softmax",
    "MoC": "moc",
    "MoS": "mos",
    "Sigsoftmax": "sigsoftmax",
    "Generalized Sigsoftmax": "gss",
    "LMS-PLIF": "lms-plif",
}
