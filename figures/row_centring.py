"""Row-centred against raw singular values."""

from __future__ import annotations

from typing import final

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import HEADS, head_of

from .base import Figure
from .measured_spectra import NEEDS, measured, spaced
from .results import Results

LOOKS = {"raw": ("0.35", "-"), "row-centred": ("#0173b2", "--")}


@final
class RowCentring(Figure):
    """Singular values of the log-probability matrix as it is and with each row's mean subtracted, which takes out the
    large first value along all-ones; dotted, in the same colour, the tolerance of each. Values below what the method
    resolves are not drawn.
    """

    panel = "model"
    needs = NEEDS
    height = 0.85

    def compute(self, results: Results) -> pd.DataFrame:
        """Return ``model``, ``part``, ``index`` from 1, ``sigma`` and ``tolerance``, of the first family."""
        frames = []
        spectra = measured(results)
        for each in spectra:
            if each.family != spectra[0].family:
                continue
            head = head_of(each.model)
            for part, values, error, tolerance in each.parts():
                places = spaced(len(values))
                places = places[values[places] > error]
                numbers = {"index": places + 1, "sigma": values[places], "tolerance": tolerance, "full": len(values)}
                name = HEADS[head].label if head == each.model else each.model
                frames.append(pd.DataFrame({"model": name, "part": part, **numbers}))
        return pd.concat([pd.DataFrame(), *frames])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one model."""
        for part, (color, dashes) in LOOKS.items():
            rows = data[data["part"] == part]
            tolerance = rows["tolerance"].iloc[0]
            rows = rows[rows["sigma"] > 1e-3 * tolerance]
            ax.plot(rows["index"], rows["sigma"], dashes, color=color, label=part)
            ax.axhline(tolerance, color=color, linestyle=":", linewidth=0.9, zorder=1)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(0.8, 1.3 * data["full"].iloc[0])
        ax.set_xlabel("index $i$")
        ax.set_ylabel(r"$\sigma_i$")
