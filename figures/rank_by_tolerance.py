"""Rank as a function of the tolerance."""

from __future__ import annotations

from typing import final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import looks
from softmax_bottleneck.spectrum.rules import MARGIN

from .base import Figure
from .measured_spectra import NEEDS, measured
from .results import Results

FACTORS = np.geomspace(1e-3, 1e3, 241)


@final
class RankByTolerance(Figure):
    """Number of singular values above a tolerance, over Press's tolerance. In the grey band, ten times more and less, a
    determinate rank is flat. Curves end where the method resolves nothing more.
    """

    panel = "family"
    needs = NEEDS

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``family``, ``model``, ``factor`` (of Press's tolerance) and ``rank`` where it is resolved."""
        frames = []
        for each in measured(results):
            limits = FACTORS * each.tolerance
            ranks = np.searchsorted(-each.spectrum.values, -limits)  # values above a limit
            kept = limits >= each.spectrum.error
            numbers = {"factor": FACTORS[kept], "rank": ranks[kept], "full": len(each.spectrum.values)}
            frames.append(pd.DataFrame({"family": each.family, "model": each.model, **numbers}))
        return pd.concat([pd.DataFrame(), *frames])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one curve a model."""
        ax.axvspan(1 / MARGIN, MARGIN, color="0.9", zorder=0, linewidth=0)
        ax.axvline(1, color="0.45", linestyle="--", linewidth=0.9, zorder=1)
        for model, look in looks(dict.fromkeys(data["model"])).items():
            rows = data[data["model"] == model]
            ax.plot(rows["factor"], rows["rank"], drawstyle="steps-post", **look.line())
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("tolerance, multiples of Press's")
        ax.set_ylabel("rank")
