"""Yang et al. 2018, figure 1: cumulative percentage of normalized singular values."""

from __future__ import annotations

from typing import final

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting.spectra import draw_cdf
from softmax_bottleneck.spectrum import Spectrum

from .base import FamilyFigure
from .results import SPECTRUM, Results


@final
class MoSFigure1(FamilyFigure):
    """Percentage of the log-probability matrix's singular values below a share of the largest (Yang et al. 2018, figure
    1). Where a curve starts with a hollow circle, its method does not resolve smaller values.
    """

    needs = f"spectra of the demo or of 'bottleneck demo --family NAME', or {SPECTRUM}"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``family``, ``model``, ``normalized``, ``percent`` and ``resolved``; see `Spectrum.curves`."""
        return pd.concat([pd.DataFrame(), *(_curve(key, spectrum) for key, spectrum in results.spectra.items())])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one curve a model."""
        draw_cdf(ax, data)


def _curve(key: str, spectrum: Spectrum) -> pd.DataFrame:
    family, _, model = key.rpartition("/")
    curves = spectrum.curves(model).assign(family=family)
    rows = curves[curves["part"] == "raw"].sort_values("normalized", kind="stable")
    return rows[["family", "model", "normalized", "percent", "resolved"]]
