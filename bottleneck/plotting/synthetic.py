"""What a model of embedding size D comes to: one line a model, a band for the spread over seeds."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

LABELS = {"mode_match": "contexts with matching modes", "kl": "KL(P* ‖ Q) in nats"}


def draw_against_dim(ax: Axes, summary: pd.DataFrame, metric: str) -> None:
    """Draw one metric against the embedding size.

    The dashed line is what the softmax's fitted embeddings reach with the best context vectors.

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
        best = rows.dropna(subset=[f"best_{metric}"])
        if len(best):
            label = f"{model}, best context vectors"
            ax.plot(best["dim"], scale * best[f"best_{metric}"], "--", color=line.get_color(), linewidth=1, label=label)
    ax.set_xscale("log")
    dims = sorted(summary["dim"].unique())
    ax.set_xticks(dims, [str(dim) for dim in dims])
    ax.minorticks_off()
    ax.set_xlabel("embedding size D")
    ax.set_ylabel(LABELS[metric])
    ax.set_ylim(bottom=0)
    if metric == "mode_match":
        ax.yaxis.set_major_formatter("{x:.0f} %")
