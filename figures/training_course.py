"""Rank and perplexity over training."""

from __future__ import annotations

from typing import final

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import looks

from .base import Figure
from .results import CHECKPOINT, Results

NEEDS = "ranks of checkpoints that were kept: bottleneck rank CHECKPOINT --json FAMILY/NAME.epoch-N.json"
DECADE = 10
"""Ratio of ranks from which on their axis is logarithmic."""
ASIDE = 0.05
"""Epochs between the marks of two models, so that equal ranks stand side by side."""
LABELS = {"perplexity": "validation perplexity", "rank": "row-centred rank"}


@final
class TrainingCourse(Figure):
    """Validation perplexity, and the rank of the row-centred log-probability matrix, over training; bars from the
    lowest to the highest rank within the interval of tolerances. Marks of one epoch stand side by side. Models of the
    preset family ``ptb-fast`` (the papers' sizes on Penn Treebank), or of another if more of its checkpoints were
    ranked.
    """

    panel, panel_title = "panel", ""
    needs = NEEDS
    share_y = False
    height = 0.75

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``panel``, ``family``, ``model``, ``epoch``, ``value``, ``low`` and ``high`` of one family, seed 0.

        It is the family with most checkpoints, or the last one if none was kept.
        """
        rows = []
        for saved in results.of("report"):
            family, _, model = saved.key.rpartition("/")
            for row in saved.content.get("history", []) if saved.seed == 0 else []:
                place = {"family": family, "model": model, "epoch": row["epoch"]}
                rows.append({"panel": "perplexity", **place, "value": row["valid_perplexity"]})
        for saved in results.of(CHECKPOINT):
            family, _, model = saved.key.rpartition("/")
            rank = {key: saved.content["rank_centered"][key] for key in ("value", "low", "high")}
            rows.append({"panel": "rank", "family": family, "model": model, "epoch": saved.epoch, **rank})
        columns = ["panel", "family", "model", "epoch", "value", "low", "high"]
        data = pd.DataFrame(rows, columns=columns)
        return data[data["family"].isin(_most_ranked(data))].sort_values(["panel", "model", "epoch"], kind="stable")

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return the ranks where there are none."""
        return [] if (data["panel"] == "rank").any() else [self.needs]

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one of the two quantities, one line a model."""
        panel = data["panel"].iloc[0]
        models = looks(dict.fromkeys(data["model"]))
        for place, (model, look) in enumerate(models.items()):
            rows = data[data["model"] == model]
            aside = ASIDE * (place - (len(models) - 1) / 2) if panel == "rank" else 0.0
            ax.plot(rows["epoch"] + aside, rows["value"], **look.line(marker=look.marker))
            if panel == "rank":
                ax.vlines(rows["epoch"] + aside, rows["low"], rows["high"], color=look.color, linewidth=0.8)
        if panel == "rank":
            is_wide = data["high"].max() > DECADE * data["low"].min()
            ax.set_yscale("log" if is_wide else "linear")
            if not is_wide:
                ax.set_ylim(0, 1.08 * data["high"].max())
        ax.set_xlabel("epoch")
        ax.set_ylabel(LABELS[panel])


def _most_ranked(data: pd.DataFrame) -> list[str]:
    """Return the family with most ranks; without ranks the last family, and no family without data."""
    ranked = data.loc[data["panel"] == "rank", "family"]
    return [*ranked.mode()[:1]] if len(ranked) else [*data["family"][-1:]]
