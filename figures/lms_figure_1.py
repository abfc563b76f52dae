"""Ganea et al. 2019, figure 1: a piecewise linear increasing function."""

from __future__ import annotations

from typing import final

import pandas as pd
import torch
from matplotlib.axes import Axes

from softmax_bottleneck.heads.plif import PLIF
from softmax_bottleneck.plotting import HEADS

from .base import Figure
from .results import Results

PIECES, INTERVAL, SEED = 8, 4.0, 3


@final
class LMSFigure1(Figure):
    """A piecewise linear increasing function (PLIF) with eight pieces on [−4, 4] and random slopes, which continues
    linearly outside (Ganea et al. 2019, figure 1 and §4).
    """

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``x``, ``f`` and whether x is a ``knot``; the outermost points lie outside the interval."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            function = PLIF(knots=PIECES, interval=INTERVAL, noise=2.0)
        knots = function.function().knots
        x = torch.cat([knots[:1] - 1, knots, knots[-1:] + 1])
        with torch.no_grad():
            values = function.double()(x)
        return pd.DataFrame({"x": x, "f": values, "knot": [False, *[True] * len(knots), False]})

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw the function and its knots."""
        look, knots = HEADS["lms-plif"], data[data["knot"]]
        ax.plot(data["x"], data["f"], **look.line(label="PLIF $f$"))
        ax.plot(knots["x"], knots["f"], "o", color=look.color, label="knots $l_i$")
        ax.set_xlabel("logit $x$")
        ax.set_ylabel("$f(x)$")
