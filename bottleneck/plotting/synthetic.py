"""What a model of embedding size D comes to: one line a model, a band for the spread over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

LEAST_PROBABILITY = 1e-12
"""Where the axis of probabilities ends."""
LABELS = {"mode_match": "contexts with matching modes", "kl": "KL(P* ‖ Q) in nats"}


def draw_against_dim(ax: Axes, summary: pd.DataFrame, metric: str) -> None:
    """Draw one metric against the embedding size.

    The dashed line is what the softmax's fitted embeddings give with the context vectors of least KL. A hollow marker
    stands where not all runs met the criterion of convergence.

    Args:
        ax: drawn into.
        summary: rows of `summarize` with one α and one M.
        metric: ``"mode_match"`` or ``"kl"``.
    """
    scale = 100 if metric == "mode_match" else 1
    for model, rows in summary.groupby("model", sort=False):
        rows = rows.sort_values("dim")
        mean, spread = scale * rows[metric], scale * rows[f"{metric}_std"].fillna(0)
        (line,) = ax.plot(rows["dim"], mean, marker="o", markersize=3, label=str(model))
        ax.fill_between(rows["dim"], mean - spread, mean + spread, color=line.get_color(), alpha=0.25, linewidth=0)
        unfinished = rows[rows["converged"] < rows["seeds"]]
        if len(unfinished):
            places, color = (unfinished["dim"], scale * unfinished[metric]), line.get_color()  # else the next one's
            ax.plot(*places, "o", color=color, label="_not converged", markersize=3, markerfacecolor="white", zorder=3)
        best = rows.dropna(subset=[f"best_{metric}"])
        if len(best):
            label = f"{model}, vectors of least KL"
            ax.plot(best["dim"], scale * best[f"best_{metric}"], "--", color="black", linewidth=1, label=label)
    ax.set_xscale("log")
    dims = sorted(summary["dim"].unique())
    ax.set_xticks(dims, [str(dim) for dim in dims])
    ax.minorticks_off()
    ax.set_xlabel("embedding size D")
    ax.set_ylabel(LABELS[metric])
    if metric == "mode_match":
        ax.yaxis.set_major_formatter("{x:.0f} %")


def draw_sorted_probabilities(ax: Axes, curves: Sequence[Mapping[str, Any]]) -> None:
    """Draw probability against rank, one line a concentration: the median over contexts, a band for the quantiles.

    Args:
        ax: drawn into.
        curves: each with ``alpha``, ``ranks``, and ``log_probs``: natural logarithms, three quantiles × ranks.
    """
    for curve in curves:
        low, median, high = np.exp(curve["log_probs"])
        (line,) = ax.plot(curve["ranks"], median, label=f"α = {curve['alpha']:g}")
        ax.fill_between(curve["ranks"], low, high, color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(LEAST_PROBABILITY, 1)
    ax.set_xlabel("rank of the token")
    ax.set_ylabel("probability")
