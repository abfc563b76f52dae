"""What small models learn of SpamLang, against the number of symbols."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.results.plotting import HEADS

from .base import figure
from .results import Results

NEEDS = "bottleneck bench spam --json FILE"


def learned(results: Results) -> pd.DataFrame:
    """Return ``vocab``, ``size``, ``head``, ``symbols`` and ``share``, the loss over that of a uniform guess."""
    data = pd.DataFrame([case for saved in results.of("spam") for case in saved.content["cases"].values()])
    return data.assign(share=data["nats"] / data["chance"]).sort_values(["size", "vocab"]) if len(data) else data


@figure("spam", data=learned, needs=NEEDS, panel="size", panel_title=lambda size, rows: f"d = {size}")
def spam(ax: Axes, data: pd.DataFrame) -> None:
    """Loss of the repeated symbol over that of a uniform guess after equal training on SpamLang, in which every text
    repeats one symbol: 0 is learned, 1 is not. Solid: texts of all M symbols, so that a symbol of M = 100,000 is seen a
    hundredth as often as one of M = 1,000. Dashed: the output layer has M outputs, but texts are drawn from 1,000
    symbols. One seed.
    """
    fewest = data["symbols"].min()
    for head, rows in data.groupby("head", sort=False):
        look = HEADS[str(head)]
        for part, dashes in ((rows["symbols"] == rows["vocab"], "-"), (rows["symbols"] == fewest, "--")):
            ax.plot(
                rows[part]["vocab"], rows[part]["share"], dashes, color=look.color, marker=look.marker,
                label=look.label if dashes == "-" else None,
            )  # fmt: skip
    ax.set_xscale("log")
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.05 * data["share"].max()))  # both panels share it
    ax.set(xlabel="M", ylabel="loss / loss of a guess")
