"""Pictures of single measurements: a spectrum, a histogram, shares, values beside their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .looks import BLACK, BLUE, ORANGE

LEAST = 1e-17
"""Smallest value that a logarithmic axis shows: what lies below is no more than roundoff of float64."""
REFERENCE: dict[str, Any] = {"color": "0.35", "linestyle": "--", "linewidth": 0.9}
"""Look of a line that measurements are compared with."""


def draw_histogram(ax: Axes, edges: Sequence[float], counts: Sequence[int], mean: float) -> None:
    """Draw how many drawn pairs of contexts have a divergence, and the mean."""
    ax.stairs(counts, edges, fill=True, color=BLUE, alpha=0.6, label="drawn pairs")
    ax.axvline(mean, label="mean", **REFERENCE)
    ax.set(xlabel=r"KL$(P(\cdot|c)\,\Vert\,P(\cdot|c'))$, nats", ylabel="pairs")


def draw_kept(ax: Axes, bands: Sequence[tuple[str, float]], whole: float, chance: float) -> None:
    """Draw the share of the gradient that is kept, in percent, for targets of each frequency."""
    labels, shares = zip(*bands, strict=True)
    ax.plot(labels, [100 * share for share in shares], "o", color=BLUE, label="kept, by the target's frequency")
    ax.axhline(100 * whole, color=BLUE, linewidth=0.9, label="kept, all contexts")
    ax.axhline(100 * chance, label="kept of a random direction", **REFERENCE)
    ax.set(xlabel="times that the target occurs", ylabel="share of the norm, %")
    ax.margins(x=0.2)
    ax.set_ylim(bottom=0)


def draw_descending(ax: Axes, curves: Mapping[str, Any], ylabel: str) -> None:
    """Draw curves of descending values against their index, both logarithmic; zeros end a curve."""
    for (label, values), color, line in zip(curves.items(), (BLACK, BLUE), ("-", "--"), strict=False):
        ax.plot(np.arange(1, len(values) + 1), np.where(values > 0, values, np.nan), line, color=color, label=label)
    ax.set(xscale="log", yscale="log", xlabel="index $i$", ylabel=ylabel)


def draw_limits(ax: Axes, tests: Mapping[str, tuple[float, float]]) -> None:
    """Draw what each test leaves, which is zero for the model itself, beside the most that roundoff leaves."""
    values, limits = ([max(each[place], LEAST) for each in tests.values()] for place in (0, 1))
    ax.plot(values, list(tests), "o", color=BLUE, label="left by the rows")
    ax.plot(limits, list(tests), "|", color=ORANGE, markersize=14, markeredgewidth=2, label="most of roundoff")
    ax.set(xscale="log", ylim=(len(tests) - 0.5, -0.5), xlabel="deviation from the model, relative")


def draw_intervals(ax: Axes, scores: Mapping[str, Any]) -> None:
    """Draw means with their intervals, one line a score."""
    means, lows, highs = np.array([(each.mean, each.low, each.high) for each in scores.values()]).T
    ax.errorbar(means, list(scores), xerr=(means - lows, highs - means), fmt="o", color=BLUE, capsize=2)
    ax.invert_yaxis()
    ax.set(xlabel="score, with its 95 % interval")
