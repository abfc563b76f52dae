"""The least KL divergence that fitted embeddings allow, over the fitted one."""

from __future__ import annotations

from typing import final

import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import draw_means
from softmax_bottleneck.plotting.statistical import PALETTE

from .base import Figure
from .lms_synthetic import tidy
from .results import Results


@final
class AttainableKL(Figure):
    """Least KL divergence for a linear Softmax's fitted embeddings, at optimal context vectors, divided by the fitted
    KL divergence. Near 1, gradient descent found almost optimal context vectors. The ratio falls where D is so large
    that the fitted divergence itself is almost 0. Means of the seeds, bands of one standard deviation.
    """

    panel, panel_title = "vocab", "M = {:,}"
    needs = "cells of a linear Softmax: bottleneck synthetic --alpha 0.1 --json FILE"
    height = 0.95

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``vocab``, ``alpha``, ``dim``, ``seed`` and ``ratio``."""
        cells = [cell for saved in results.of("cells") for cell in saved.content["cells"]]
        frames = [pd.DataFrame()]
        for alpha in sorted({cell["alpha"] for cell in cells}):
            fits = tidy([cell for cell in cells if cell["alpha"] == alpha], "kl").dropna(subset=["attainable"])
            frames.append(fits.assign(alpha=alpha, ratio=fits["attainable"].astype(float) / fits["kl"]))
        data = pd.concat(frames)
        return data[["vocab", "alpha", "dim", "seed", "ratio"]] if len(data) else data

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one vocabulary, one line a concentration."""
        thick, large = rcParams["lines.linewidth"], rcParams["lines.markersize"]
        styles = zip(data.groupby("alpha"), PALETTE, ("-", "--", ":"), ("o", "s", "^"), (1.8, 1.2, 0.7), strict=False)
        for (alpha, rows), color, dashes, marker, size in styles:  # curves that coincide are all seen
            look = {"linestyle": dashes, "linewidth": size * thick, "marker": marker, "markersize": size * large}
            draw_means(ax, rows, "dim", "ratio", color=color, markeredgewidth=0, label=f"α = {alpha:g}", **look)
        ax.axhline(1, color="0.6", linewidth=0.8, zorder=1)
        ax.set_xscale("log")
        dims = sorted(data["dim"].unique())
        ax.set_xticks(dims, [str(dim) for dim in dims])
        ax.minorticks_off()
        ax.set_xlabel("embedding size $D$")
        ax.set_ylabel("attainable / fitted KL")
