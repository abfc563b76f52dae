"""Ganea et al. 2019, table 2: the learned slopes of a piecewise linear increasing function (PLIF) and initial ones."""

from __future__ import annotations

import math
from typing import final

import numpy as np
import pandas as pd
from scipy import integrate, special, stats

from softmax_bottleneck.heads.plif import UNIT_SLOPE
from softmax_bottleneck.plotting import HEADS, head_of
from softmax_bottleneck.published import tables

from .base import Table
from .published_table import COLUMNS, cell
from .results import Results

PIECES = 100_000
"""Number of pieces of the model of Ganea et al. 2019."""


@final
class LMSTable2(Table):
    """Slopes of PLIF: published, after training on WikiText-2 (Ganea et al. 2019, table 2); expected before training,
    softplus of normal numbers with mean log(e − 1) ≈ 0.54 and standard deviation 1 (min and max: medians for 100,000
    slopes); and measured after training. The published slopes agree with those expected before training.
    """

    needs = "a report of a PLIF head with its function: bottleneck demo"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return mean, standard deviation, least and largest slope of each; see `Table`."""
        (published,) = tables("lms", "2")
        cells = [
            cell(f"{row.name}, published", column, "", value, value=float(value), source=published.source)
            for row in published.rows
            for column, value in zip(published.columns, row.values, strict=True)
        ]
        rows = [("expected before any training", initial_slopes(), "softplus of N(0.54, 1)")]
        for saved in results.of("report"):
            if "function" in saved.content:
                label = HEADS[head_of(saved.content["name"]) or "lms-plif"].label
                name = f"{label}, {saved.key.rpartition('/')[0]}, seed {saved.seed}, measured"
                rows.append((name, saved.content["function"]["slopes"], saved.key))
        cells += [
            cell(name, column, "", f"{slopes[column]:.2f}", value=slopes[column], source=source)
            for name, slopes, source in rows
            for column in published.columns
        ]
        return pd.DataFrame(cells, columns=COLUMNS)

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return the measurement where there is none."""
        return [] if data["row"].str.endswith("measured").any() else [self.needs]


def initial_slopes(pieces: int = PIECES) -> dict[str, float]:
    r"""Return mean and deviation of :math:`s = \log(1 + e^v)`, v ∼ N(log(e − 1), 1), and medians of the extremes.

    Args:
        pieces: P, the number of slopes that the extremes are of.

    Example:
        >>> {name: round(value, 2) for name, value in initial_slopes().items()}
        {'mean': 1.11, 'std': 0.63, 'min': 0.02, 'max': 4.89}
    """

    def moment(power: int) -> float:
        """Return E[s^power] by quadrature."""
        return integrate.quad(lambda z: softplus(UNIT_SLOPE + z) ** power * stats.norm.pdf(z), -12, 12)[0]

    def softplus(v: float) -> float:
        return float(np.logaddexp(0.0, v))

    extreme = float(special.ndtri(0.5 ** (1 / pieces)))  # P(all below z) = 1/2
    mean = moment(1)
    return {
        "mean": mean,
        "std": math.sqrt(moment(2) - mean**2),
        "min": softplus(UNIT_SLOPE - extreme),
        "max": softplus(UNIT_SLOPE + extreme),
    }
