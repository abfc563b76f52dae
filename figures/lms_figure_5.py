"""Ganea et al. 2019, figure 5: how the concentration shapes distributions drawn from a Dirichlet."""

from __future__ import annotations

from typing import final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting.statistical import PALETTE

from .base import Figure
from .results import KINDS, Results

LEAST_PROBABILITY = 1e-12
"""Lower end of the axis of probabilities."""


@final
class LMSFigure5(Figure):
    """Probability of the most probable, second most probable, … of M tokens in distributions drawn from a Dirichlet
    with concentration α: median and band from the first to the last decile over contexts (Ganea et al. 2019, figure 5).
    """

    panel, panel_title = "vocab", "M = {:,}"
    needs = KINDS["concentrations"][1]
    height = 0.95

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``vocab``, ``alpha``, ``rank`` and quantiles of the probability, ``low``, ``median``, ``high``."""
        curves = [curve for saved in results.of("concentrations") for curve in saved.content["curves"]]
        frames = [
            pd.DataFrame(
                {
                    "vocab": curve["vocab"],
                    "alpha": curve["alpha"],
                    "rank": curve["ranks"],
                    **dict(zip(("low", "median", "high"), np.exp(curve["log_probs"]), strict=True)),
                }
            )
            for curve in curves
        ]
        return pd.concat([pd.DataFrame(), *frames])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one vocabulary, one line a concentration."""
        for (alpha, rows), color, dashes in zip(data.groupby("alpha"), PALETTE, ("-", "--", "-."), strict=False):
            ax.plot(rows["rank"], rows["median"], dashes, color=color, label=f"α = {alpha:g}")
            ax.fill_between(rows["rank"], rows["low"], rows["high"], color=color, alpha=0.25, linewidth=0)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(LEAST_PROBABILITY, 2)
        ax.set_xlabel("rank of the token")
        ax.set_ylabel("probability")
