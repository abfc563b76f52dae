"""Row-centred against raw singular values."""

from __future__ import annotations

from typing import final

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import HEADS, head_of
from softmax_bottleneck.plotting.spectra import ZERO, spaced

from .base import Figure
from .measured_spectra import NEEDS, measured
from .results import Results

LOOKS = {"raw": ("0.35", "-"), "row-centred": ("#0173b2", "--")}


@final
class RowCentring(Figure):
    """Singular values of the log-probability matrix, raw and with each row's mean subtracted, which removes the large
    first value in the direction of all ones. Dotted lines of the same colour show the tolerances. Values that the
    method does not resolve are not drawn. Models of the first family with spectra; those of the demo (text of
    Python's documentation) if there are any.
    """

    panel = "model"
    needs = NEEDS
    height = 0.85

    def compute(self, results: Results) -> pd.DataFrame:
        """Return the resolved rows of `Spectrum.curves` of the first family; ``tolerance`` is not over σ_1."""
        spectra = measured(results)
        frames = []
        for each in spectra:
            if each.family == spectra[0].family:
                head, rows = head_of(each.model), each.curves()
                rows["tolerance"] *= rows.groupby("part")["sigma"].transform("max")
                name = HEADS[head].label if head == each.model else each.model
                frames.append(rows[rows["resolved"]].assign(model=name))
        return pd.concat([pd.DataFrame(), *frames])

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one model."""
        for part, (color, dashes) in LOOKS.items():
            rows = data[data["part"] == part]
            tolerance = rows["tolerance"].iloc[0]
            rows = rows[rows["sigma"] > ZERO * tolerance]
            rows = rows.iloc[spaced(len(rows))]
            ax.plot(rows["index"], rows["sigma"], dashes, color=color, label=part)
            ax.axhline(tolerance, color=color, linestyle=":", linewidth=0.9, zorder=1)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(0.8, 1.3 * data["size"].iloc[0])
        ax.set_xlabel("index $i$")
        ax.set_ylabel(r"$\sigma_i$")
