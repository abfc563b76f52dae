"""LMS paper, figure 5: how the concentration shapes distributions drawn from a Dirichlet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.files import write_json
from softmax_bottleneck.plotting import PAPER, save_figure
from softmax_bottleneck.plotting.synthetic import draw_sorted_probabilities
from softmax_bottleneck.synthetic import DirichletBlocks

ALPHAS = (0.01, 0.1, 1.0)
VOCABS = (100, 1000, 10_000)
CONTEXTS = 1000
RANKS = 48
"""Ranks that are kept, at equal ratios."""
QUANTILES = (0.1, 0.5, 0.9)
RESULT = "figure-5.json"

Result = Mapping[str, Any]


def measure(
    *, alphas: Sequence[float] = ALPHAS, vocabs: Sequence[int] = VOCABS, contexts: int = CONTEXTS, seed: int = 0
) -> Result:
    """Sample distributions and take quantiles over contexts of their largest, second largest, … log-probability."""
    curves = []
    for vocab in vocabs:
        ranks = torch.unique(torch.logspace(0, torch.tensor(vocab).log10().item(), RANKS).round().long())
        for alpha in alphas:
            blocks = DirichletBlocks(contexts, vocab, alpha, seed)
            kept = torch.cat([block.sort(1, descending=True).values[:, ranks - 1] for block in blocks]).double()
            quantiles = torch.quantile(kept, torch.tensor(QUANTILES, dtype=torch.float64), dim=0)
            curves.append(
                {
                    "alpha": alpha,
                    "vocab": vocab,
                    "ranks": ranks.tolist(),
                    "log_probs": quantiles.round(decimals=4).tolist(),
                }
            )
    return {"contexts": contexts, "seed": seed, "quantiles": list(QUANTILES), "curves": curves}


def compute(folder: Path) -> Result:
    """Return the result kept in a folder."""
    try:
        result: Result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"{folder} holds no {RESULT}: write it with 'python -m softmax_bottleneck.figures.lms_figure_5 {folder}'"
        ) from error
    return result


def draw(axes: Mapping[int, Axes], result: Result) -> None:
    """Draw one panel for each vocabulary size M."""
    for vocab, ax in axes.items():
        draw_sorted_probabilities(ax, [curve for curve in result["curves"] if curve["vocab"] == vocab])
        ax.set_title(f"M = {vocab:,}")
    next(iter(axes.values())).legend(loc="lower left")
    for ax in list(axes.values())[1:]:
        ax.set_ylabel("")


def save(result: Result, *paths: Path) -> None:
    """Write the figure to every path."""
    vocabs = list(dict.fromkeys(curve["vocab"] for curve in result["curves"]))
    with mpl.rc_context(PAPER):
        figure, axes = plt.subplots(1, len(vocabs), figsize=(3.0 * len(vocabs), 2.7), sharey=True, squeeze=False)
        try:
            draw(dict(zip(vocabs, axes[0], strict=True)), result)
            for path in paths:
                save_figure(figure, path)
        finally:
            plt.close(figure)


if __name__ == "__main__":
    import sys

    write_json(Path(sys.argv[1]) / RESULT, measure())
