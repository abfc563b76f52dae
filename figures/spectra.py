"""Singular values on log–log axes, with the tolerance that a rank is counted at."""

from __future__ import annotations

from typing import final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import Look, looks
from softmax_bottleneck.spectrum.rules import MARGIN

from .base import Figure
from .measured_spectra import NEEDS, measured, spaced
from .results import Results


@final
class Spectra(Figure):
    """Singular values of the log-probability matrix over the largest. The dashed line is the tolerance (Press) that the
    rank is counted at, and the grey band ten times more and less: a rank is determinate where a curve crosses the band
    at one number. A hollow circle ends a curve whose further values the method does not resolve.
    """

    panel = "family"
    needs = NEEDS

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``family``, ``model``, ``index`` from 1, and ``sigma``, ``tolerance``, ``resolution`` over σ_1.

        ``unresolved`` is the number of values that the method does not tell from zero; those that are zero by the
        algebra of a log-linear head do not count.
        """
        frames = []
        for each in measured(results):
            values, error = each.spectrum.values, each.spectrum.error
            places = spaced(len(values))
            places = places[values[places] > error]
            frames.append(
                pd.DataFrame(
                    {
                        "family": each.family,
                        "model": each.model,
                        "index": places + 1,
                        "sigma": values[places] / values[0],
                        "tolerance": each.tolerance / values[0],
                        "resolution": error / values[0],
                        "unresolved": np.count_nonzero(values <= error) if error > 1e-3 * each.tolerance else 0,
                    }
                )
            )
        return pd.concat([pd.DataFrame(), *frames])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one curve a model, the tolerance and its band."""
        draw_tolerance(ax, data["tolerance"].median())
        for model, look in looks(dict.fromkeys(data["model"])).items():
            rows = data[data["model"] == model]
            rows = rows[rows["sigma"] > 1e-3 * rows["tolerance"]]  # zero, as far as any number in the matrix can tell
            ax.plot(rows["index"], rows["sigma"], **look.line())
            mark_unresolved(ax, rows.tail(1), "index", "sigma", look)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("index $i$")
        ax.set_ylabel(r"$\sigma_i\,/\,\sigma_1$")


def mark_unresolved(ax: Axes, end: pd.DataFrame, x: str, y: str, look: Look) -> None:
    """Draw a hollow circle at the end of a curve that its method does not resolve further."""
    if end["unresolved"].any():
        ax.plot(end[x], end[y], "o", color=look.color, markerfacecolor="white", zorder=4)


def draw_tolerance(ax: Axes, tolerance: float) -> None:
    """Draw a tolerance on the vertical axis, and the band that leaves a rank open."""
    ax.axhspan(tolerance / MARGIN, tolerance * MARGIN, color="0.88", zorder=0, linewidth=0)
    ax.axhline(tolerance, color="0.45", linestyle="--", linewidth=0.9, zorder=1)
    ax.annotate(
        "tolerance", (0.01, tolerance), xycoords=("axes fraction", "data"), xytext=(0, 2), textcoords="offset points",
        color="0.35", fontsize="small",
    )  # fmt: skip
