"""Ganea et al. 2019, figures 1, 4 and 5 and table 2: piecewise linear increasing functions, and Dirichlet draws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from scipy import integrate, special, stats

from softmax_bottleneck.heads.plif import PLIF, UNIT_SLOPE
from softmax_bottleneck.results.plotting import HEADS, head_of
from softmax_bottleneck.results.plotting.looks import PALETTE
from softmax_bottleneck.results.published import tables

from .base import by_model, cell, family_panels, figure, stacked, table
from .results import SavedResults

PIECES, INTERVAL, SEED = 8, 4.0, 3
"""The function of figure 1."""
LEAST_PROBABILITY = 1e-12
"""Lower end of the axis of probabilities."""
ALL_PIECES = 100_000
"""Number of pieces of the model of Ganea et al. 2019."""
CONCENTRATIONS = "python -m softmax_bottleneck.synthetic.concentrations FILE"
FUNCTION = "a report of a PLIF head with its function: bottleneck demo"


def random_function(results: SavedResults) -> pd.DataFrame:
    """Return ``x``, ``f`` and whether x is a ``knot``; the outermost points lie outside the interval."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        function = PLIF(knots=PIECES, interval=INTERVAL, noise=2.0)
    knots = function.function().knots
    x = torch.cat([knots[:1] - 1, knots, knots[-1:] + 1])
    with torch.no_grad():
        values = function.double()(x)
    return pd.DataFrame({"x": x, "f": values, "knot": [False, *[True] * len(knots), False]})


@figure("lms-figure-1", data=random_function, heading=lambda data: "an example with random slopes, not a measurement")
def plif(ax: Axes, data: pd.DataFrame) -> None:
    """An example, not a measurement: a piecewise linear increasing function (PLIF) with eight pieces on [−4, 4] and
    random slopes, which continues linearly outside (Ganea et al. 2019, figure 1 and §4).
    """
    look, knots = HEADS["lms-plif"], data[data["knot"]]
    ax.plot(data["x"], data["f"], **look.line(label="PLIF $f$"))
    ax.plot(knots["x"], knots["f"], "o", color=look.color, label="knots $l_i$")
    ax.set(xlabel="logit $x$", ylabel="$f(x)$")


def learned_functions(results: SavedResults) -> pd.DataFrame:
    """Return ``family``, ``model``, ``x`` and ``f`` of the functions in the reports, seed 0."""
    return stacked(
        pd.DataFrame(
            {"family": saved.family, "model": saved.content["name"], "x": function["knots"], "f": function["values"]}
        )
        for saved in results.of("demo")
        if saved.seed == 0 and (function := saved.content.get("function"))
    )


@figure("lms-figure-4", data=learned_functions, needs=FUNCTION, **family_panels(share_y=False))
def learned_plif(ax: Axes, data: pd.DataFrame) -> None:
    """Functions that PLIF heads learned, less the identity, with which the head is a Softmax: f(x) − x, shifted to 0 at
    x = 0, since a softmax does not depend on a constant (Ganea et al. 2019, figure 4, for WikiText-2, shows f).
    """
    ax.axhline(0, color="0.5", linewidth=1, linestyle=":")
    for look, rows in by_model(data):
        ax.plot(rows["x"], rows["f"] - rows["x"], **look.line())
    ax.set(xlabel="logit $x$", ylabel="$f(x) - x$")


def concentrations(results: SavedResults) -> pd.DataFrame:
    """Return ``vocab``, ``alpha``, ``rank`` and quantiles of the probability, ``low``, ``median``, ``high``."""
    return stacked(
        pd.DataFrame(
            {
                **{key: curve[key] for key in ("vocab", "alpha")},
                "rank": curve["ranks"],
                **dict(zip(("low", "median", "high"), np.exp(curve["log_probs"]), strict=True)),
            }
        )
        for saved in results.of("concentrations")
        for curve in saved.content["curves"]
    )


@figure("lms-figure-5", data=concentrations, needs=CONCENTRATIONS, layout={"height": 0.95},
        panel="vocab", panel_title=lambda vocab, rows: f"M = {vocab:,}")  # fmt: skip
def dirichlet_draws(ax: Axes, data: pd.DataFrame) -> None:
    """Probability of the most probable, second most probable, … of M tokens in distributions drawn from a Dirichlet
    with concentration α, the first position the most probable: median and band from the first to the last decile over
    contexts (Ganea et al. 2019, figure 5).
    """
    for (alpha, rows), color, dashes in zip(data.groupby("alpha"), PALETTE, ("-", "--", "-."), strict=False):
        ax.plot(rows["rank"], rows["median"], dashes, color=color, label=f"α = {alpha:g}")
        ax.fill_between(rows["rank"], rows["low"], rows["high"], color=color, alpha=0.25, linewidth=0)
    ax.set(xscale="log", yscale="log", xlabel="position of the token", ylabel="probability")
    ax.set_ylim(LEAST_PROBABILITY, 2)


@table("lms-table-2", lacks=lambda data: [] if data["row"].str.endswith("measured").any() else [FUNCTION])
def slopes(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Slopes of PLIF: published, after training on WikiText-2 (Ganea et al. 2019, table 2); expected before training,
    softplus of normal numbers with mean log(e − 1) ≈ 0.54 and standard deviation 1 (min and max: medians for 100,000
    slopes); and measured after training. The published slopes agree with those expected before training.
    """
    (published,) = tables("lms", "2")
    for row in published.rows:
        for column, value in zip(published.columns, row.values, strict=True):
            yield cell(f"{row.name}, published", column, "", value, value=float(value), source=published.source)
    rows = [("expected before any training", initial_slopes(), "softplus of N(0.54, 1)")]
    for saved in results.of("demo"):
        if "function" in saved.content:
            label = HEADS[head_of(saved.content["name"]) or "lms-plif"].label
            name = f"{label}, {saved.family}, seed {saved.seed}, measured"
            rows.append((name, saved.content["function"]["slopes"], saved.key))
    for name, numbers, source in rows:
        for column in published.columns:
            yield cell(name, column, "", f"{numbers[column]:.2f}", value=numbers[column], source=source)


def initial_slopes(pieces: int = ALL_PIECES) -> dict[str, float]:
    r"""Return mean and deviation of :math:`s = \log(1 + e^v)`, v ∼ N(log(e − 1), 1), and medians of P values' extremes.

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
