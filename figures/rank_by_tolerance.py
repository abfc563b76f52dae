"""Rank as a function of the tolerance."""

from __future__ import annotations

from typing import final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import looks
from softmax_bottleneck.plotting.spectra import mark_unresolved
from softmax_bottleneck.spectrum.rules import MARGIN

from .base import FamilyFigure
from .measured_spectra import NEEDS, measured
from .results import Results

FACTORS = np.geomspace(1e-3, 1e3, 241)


@final
class RankByTolerance(FamilyFigure):
    """Number of singular values above a tolerance, against its ratio to Press's tolerance. In the grey band, a factor
    of ten on either side, a determinate rank is constant. Where a curve starts with a hollow circle, its method
    does not resolve smaller tolerances.
    """

    needs = NEEDS

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``family``, ``model``, ``factor`` (of Press's tolerance) and ``rank`` where it is resolved.

        ``unresolved`` says whether the method does not reach the smallest factors.
        """
        frames = []
        for each in measured(results):
            limits, values, error = FACTORS * (each.limits.tolerance or 0.0), each.spectrum.values, each.spectrum.error
            ranks = np.searchsorted(-values, -limits)  # values above a limit
            kept = (limits >= error) | (values[-1] > error)
            numbers = {"factor": FACTORS[kept], "rank": ranks[kept], "unresolved": not kept.all()}
            frames.append(pd.DataFrame({"family": each.family, "model": each.model, **numbers}))
        return pd.concat([pd.DataFrame(), *frames])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one curve a model."""
        ax.axvspan(1 / MARGIN, MARGIN, color="0.9", zorder=0, linewidth=0)
        ax.axvline(1, color="0.45", linestyle="--", linewidth=0.9, zorder=1)
        for model, look in looks(dict.fromkeys(data["model"])).items():
            rows = data[data["model"] == model]
            ax.plot(rows["factor"], rows["rank"], drawstyle="steps-post", **look.line())
            if rows["unresolved"].any():
                mark_unresolved(ax, rows.head(1), "factor", "rank", look)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("tolerance, multiples of Press's")
        ax.set_ylabel("rank")
