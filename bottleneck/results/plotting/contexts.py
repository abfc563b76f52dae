"""Divergences of the contexts of a text, drawn as a distribution and against the entropy of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...errors import ConfigurationError
from .layout import Panel
from .looks import looks

LEAST = 1e-12
"""Smallest divergence in nats that is drawn: smaller ones are roundoff."""
STEPS = 1000
"""Points of a distribution: a tenth of a percent cannot be seen in print."""
MOST_POINTS = 2000
"""Contexts of a model that are drawn as points, at equal distances in the text."""


def divergence_panels(models: Mapping[str, Mapping[str, Any]]) -> list[Panel]:
    """Return two panels, given ``"kl"`` and ``"entropy"``, (T,) in nats, of each model by its name."""
    if loaded := [name for name, each in models.items() if "kl" not in each]:
        raise ConfigurationError(
            f"the comparison with {loaded[0]} was loaded, and what is saved holds no numbers by context: compare again "
            "to draw it"
        )
    return [Panel(lambda ax: draw_distribution(ax, models)), Panel(lambda ax: draw_by_entropy(ax, models))]


def draw_distribution(ax: Axes, models: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the percentage of contexts below a divergence, one curve a model."""
    for model, look in looks(models).items():
        kl = np.sort(np.clip(models[model]["kl"], LEAST, None))
        places = np.unique(np.linspace(0, len(kl) - 1, STEPS).round().astype(int))
        ax.plot(kl[places], 100 * (places + 1) / len(kl), drawstyle="steps-post", **look.line())
    _divergence_axis(ax, models, "x", r"KL$(P\,\Vert\,Q)$ of a context, nats")
    ax.set_ylim(0, 101)
    ax.set_ylabel("contexts below, %")


def draw_by_entropy(ax: Axes, models: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the divergence of each context against the entropy of the reference."""
    for model, look in looks(models).items():
        kl, entropy = models[model]["kl"], models[model]["entropy"]
        places = np.unique(np.linspace(0, len(kl) - 1, MOST_POINTS).round().astype(int))
        points: dict[str, Any] = {"marker": look.marker, "color": look.color, "s": 6, "alpha": 0.4, "linewidths": 0}
        ax.scatter(entropy[places], np.clip(kl[places], LEAST, None), rasterized=True, **points)
    _divergence_axis(ax, models, "y", r"KL$(P\,\Vert\,Q)$, nats")
    ax.set_xlabel("entropy of $P$, nats")


def _divergence_axis(ax: Axes, models: Mapping[str, Mapping[str, Any]], which: str, label: str) -> None:
    """Make an axis logarithmic, and say where what is below `LEAST` is drawn."""
    kl = np.concatenate([model["kl"] for model in models.values()])
    kl = kl[np.isfinite(kl)] if np.isfinite(kl).any() else np.ones(1)
    below = "\n($10^{-12}$ stands for less)" if kl.min() < LEAST else ""
    ax.set(**{f"{which}scale": "log", f"{which}label": label + below})
    low, high = np.floor(np.log10(np.clip([kl.min(), kl.max()], LEAST, None)))
    if low == high:  # less than a decade: its ends are labelled, and nothing between them
        ax.set(**{f"{which}lim": (LEAST / 10, 1.0) if kl.max() <= LEAST else (10.0**low, 10.0 ** (high + 1))})
        getattr(ax, f"{which}axis").set_minor_formatter("")
