"""ε-effective ranks."""

from __future__ import annotations

from typing import final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import looks
from softmax_bottleneck.spectrum.measures import effective_rank

from .base import FamilyFigure
from .measured_spectra import NEEDS, measured
from .results import Results

EPSILONS = np.geomspace(1e-10, 1e-1, 91)


@final
class EffectiveRanks(FamilyFigure):
    """ε-effective rank: the number of singular values that hold all but a share ε of the energy Σσ² (Parthiban et al.
    2021). A curve ends where the singular values that the method does not resolve could hold that share.
    """

    needs = NEEDS

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``family``, ``model``, ``epsilon`` and ``rank`` where it is resolved."""
        frames = []
        for each in measured(results):
            values, error = each.spectrum.values, each.spectrum.error
            hidden = np.count_nonzero(values <= error) * error**2 / float((values**2).sum())
            kept = EPSILONS[hidden < EPSILONS]
            ranks = [effective_rank(values, epsilon=e, residual=each.spectrum.residual) for e in kept.tolist()]
            numbers = {"epsilon": kept, "rank": pd.array(ranks, dtype="Int64")}
            frames.append(pd.DataFrame({"family": each.family, "model": each.model, **numbers}))
        return pd.concat([pd.DataFrame(), *frames])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one curve a model."""
        for model, look in looks(dict.fromkeys(data["model"])).items():
            rows = data[(data["model"] == model) & data["rank"].notna()]
            ax.plot(rows["epsilon"], rows["rank"].astype(float), **look.line())
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.invert_xaxis()
        ax.set_xlabel("share ε of the energy left out")
        ax.set_ylabel("ε-effective rank")
