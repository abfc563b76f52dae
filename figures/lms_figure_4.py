"""Ganea et al. 2019, figure 4: the learned function."""

from __future__ import annotations

from typing import final

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import looks

from .base import FamilyFigure
from .results import Results


@final
class LMSFigure4(FamilyFigure):
    """Functions that PLIF heads learned, shifted to f(0) = 0, since a softmax does not depend on a constant; the dotted
    line is the identity, with which the head is a Softmax; a learned function close to the identity hides it (Ganea et
    al. 2019, figure 4, for WikiText-2).
    """

    needs = "a report of a PLIF head with its function: bottleneck demo"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``family``, ``model``, ``x`` and ``f`` of the functions in the reports, seed 0."""
        frames = [
            pd.DataFrame(
                {
                    "family": saved.key.rpartition("/")[0],
                    "model": saved.content["name"],
                    "x": saved.content["function"]["knots"],
                    "f": saved.content["function"]["values"],
                }
            )
            for saved in results.of("report")
            if "function" in saved.content and saved.seed == 0
        ]
        return pd.concat([pd.DataFrame(), *frames])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw the functions of one family."""
        for model, look in looks(dict.fromkeys(data["model"])).items():
            rows = data[data["model"] == model]
            ax.plot(rows["x"], rows["f"], **look.line())
        ends = [data["x"].min(), data["x"].max()]
        ax.plot(ends, ends, ":", color="0.5", linewidth=1, label="identity")
        ax.set_xlabel("logit $x$")
        ax.set_ylabel("$f(x) - f(0)$")
