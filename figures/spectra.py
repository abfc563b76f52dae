"""Singular values on log–log axes, with the tolerance that a rank is counted at."""

from __future__ import annotations

from typing import final

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting.spectra import draw_scree

from .base import FamilyFigure
from .measured_spectra import NEEDS, measured
from .results import Results


@final
class Spectra(FamilyFigure):
    """Singular values of the log-probability matrix over the largest. The dashed line is the tolerance (Press) that the
    rank is counted at, and the grey band ten times more and less: a rank is determinate if as many singular values lie
    above the band as above its lower edge. A vertical line marks the bound of an output layer's rank. Where a curve
    ends with a hollow circle, its method does not resolve further values.
    """

    needs = NEEDS

    def compute(self, results: Results) -> pd.DataFrame:
        """Return the raw rows of `Spectrum.curves`, with the ``family``."""
        frames = [each.curves() for each in measured(results)]
        return pd.concat([pd.DataFrame(), *(frame[frame["part"] == "raw"] for frame in frames)])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one curve a model, the tolerance and its band, and the bounds."""
        draw_scree(ax, data)
