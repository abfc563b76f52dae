"""MoS paper, figure 1: cumulative percentage of normalized singular values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.files import write_bytes
from softmax_bottleneck.plotting import looks
from softmax_bottleneck.plotting.style import SCREEN
from softmax_bottleneck.spectrum import Spectrum

from .base import Figure
from .results import SPECTRUM, Results

LEFT = 1e-10
"""The smallest share shown; the paper's axis begins there."""
STEPS = 1000
"""Of a curve: a tenth of a percent is no width in print."""


@final
class MoSFigure1(Figure):
    """Percentage of singular values of the log-probability matrix below a share of the largest (MoS paper, figure 1).
    A curve begins where its method begins to resolve: a hollow circle stands there, and what lies below is not known.
    """

    panel = "family"
    needs = f"spectra of the demo or of 'bottleneck demo --family NAME', or {SPECTRUM}"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return the curves: ``family``, ``model``, and the columns of `curve`."""
        return pd.concat([pd.DataFrame(), *(curve(key, spectrum) for key, spectrum in results.spectra.items())])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one curve a model."""
        for model, look in looks(dict.fromkeys(data["model"])).items():
            rows = data[data["model"] == model]
            seen = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, STEPS).round().astype(int))]
            ax.plot(seen["normalized"], seen["percent"], drawstyle="steps-post", **look.line())
            least = rows[~rows["resolved"]]
            if len(least) and least["normalized"].iloc[0] > LEFT:
                ax.plot(least["normalized"], least["percent"], "o", color=look.color, markerfacecolor="white")
        ax.set_xscale("log")
        ax.set_xlim(LEFT, 1.5)
        ax.set_ylim(0, 101)
        ax.set_yticks(np.arange(0, 101, 20))
        ax.set_xlabel(r"normalized singular value $\sigma\,/\,\sigma_1$")
        ax.set_ylabel("singular values below, %")


def curve(key: str, spectrum: Spectrum) -> pd.DataFrame:
    """Return ``family``, ``model``, ``normalized`` (σ / σ_1), ``percent`` of values up to it, and ``resolved``.

    Where the method cannot tell all values from zero, the first row is its resolution, which is not resolved, with the
    percentage that lies below.
    """
    normalized, percent = spectrum.cdf()
    family, _, model = key.rpartition("/")
    largest = float(spectrum.values[0]) or 1.0
    below = normalized[0] <= max(spectrum.error / largest, np.finfo(np.float64).eps)
    resolved = np.arange(len(normalized)) >= int(below)
    return pd.DataFrame(
        {"family": family, "model": model, "normalized": normalized, "percent": percent, "resolved": resolved}
    )


def save(spectra: Mapping[str, Spectrum], *paths: Path) -> None:
    """Write the figure of these spectra to every path, and its numbers as a CSV file beside the first."""
    curves = [curve("/", spectrum).assign(family="", model=label) for label, spectrum in spectra.items()]
    data = pd.concat(curves, ignore_index=True)
    MoSFigure1().write(data, *paths, style=SCREEN)
    table = data.drop(columns="family").to_csv(index=False, lineterminator="\n")
    write_bytes(paths[0].with_suffix(".csv"), table.encode())
