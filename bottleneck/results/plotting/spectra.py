"""Spectra, drawn from the rows of `Spectrum.curves`: cumulative distributions, and values against their index."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ...core.files import write_bytes
from ...errors import ConfigurationError, OutputError
from ...spectrum.rules import MARGIN, NOTHING
from ..tables import csv_text
from .layout import Panel, save_panels
from .looks import Look, looks

PARTS = ("raw", "row-centred")
LEFT = 1e-10
"""The smallest share of a distribution; the axis of the MoS paper's figure 1 begins there."""
POINTS = 400
"""Points of a curve on logarithmic axes, at equal ratios: more are not told apart in print."""
ZERO = 1e-3
"""Share of the tolerance below which a value is zero, as far as any number in the matrix can tell."""
ALIKE = 1.3
"""Largest ratio of tolerances that are drawn as one."""
UNRESOLVED = "limit of resolution"
NOTE: dict[str, Any] = {"color": "0.35", "fontsize": "small"}
"""Look of a text beside a line."""


def save_spectra(
    curves: pd.DataFrame, *paths: Path, part: str = "both", log: bool = False, style: str = "screen"
) -> None:
    """Write the figure of `spectrum_panels` to every path, and its numbers as a CSV file beside the first.

    Args:
        curves: rows of `Spectrum.curves`, of all models.
        paths: files that end in png, pdf or svg.
        part: ``"raw"``, ``"row-centred"`` or ``"both"``.
        log: whether to leave out the cumulative distributions.
        style: one of ``STYLES``.

    Raises:
        ConfigurationError: for an unknown part, style or suffix.
    """
    save_panels(spectrum_panels(curves, part=part, log=log), *paths, style=style)
    shown = curves[curves["part"].isin(_parts(part))].drop(columns="size")
    write_bytes(paths[0].with_suffix(".csv"), csv_text(shown).encode(errors="backslashreplace"))


def spectrum_panels(curves: pd.DataFrame, *, part: str = "both", log: bool = False) -> list[Panel]:
    """Return a row of panels for each part: the cumulative distribution, and the values against their index."""
    if not curves["resolved"][curves["part"].isin(_parts(part))].any():
        raise OutputError(NOTHING)
    draws = [draw_scree] if log else [draw_cdf, draw_scree]
    return [
        Panel(partial(draw, data=curves[curves["part"] == each]), each if part == "both" else "")
        for each in _parts(part)
        for draw in draws
    ]


def _parts(part: str) -> Sequence[str]:
    if part not in (*PARTS, "both"):
        raise ConfigurationError(f"unknown part {part!r} of a spectrum; it is one of {', '.join(PARTS)}, both")
    return PARTS if part == "both" else (part,)


def draw_cdf(ax: Axes, data: pd.DataFrame) -> None:
    """Draw the percentage of singular values up to a share of the largest, one curve a model.

    The axis spreads the percentages near 100, where the few values that an output layer's bound allows lie: its unit is
    the logarithm of the percentage that is left.
    """
    least = 70 / data["size"].max()
    for model, look in looks(dict.fromkeys(data["model"])).items():
        rows = data[data["model"] == model]
        seen = rows.iloc[spaced(len(rows))[::-1]]
        marker = look.marker if len(seen) == 1 else ""
        ax.plot(seen["normalized"], seen["percent"], drawstyle="steps-post", **look.line(marker=marker))
        unresolved = rows[~rows["resolved"]]
        if len(unresolved) and unresolved["normalized"].iloc[0] > LEFT:
            mark_unresolved(ax, unresolved, "normalized", "percent", look)
    left = (lambda y: -np.log10(np.maximum(100 - y, least)), lambda logarithm: 100 - 10**-logarithm)
    ax.set(xscale="log")
    ax.xaxis.set_minor_formatter("")
    ax.set_yscale("function", functions=left)
    ax.set_xlim(max(LEFT, 0.1 * data.loc[data["resolved"], "normalized"].min()), 1.5)
    ax.set_ylim(-20, 100)
    ax.set_yticks([0, *(tick for tick in (90, 99, 99.9, 99.99, 99.999) if 100 - tick > 2 * least), 100])
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xlabel(r"singular value $\sigma\,/\,\sigma_1$")
    ax.set_ylabel("values below, %")


def draw_scree(ax: Axes, data: pd.DataFrame) -> None:
    """Draw σ_i / σ_1 against i on logarithmic axes, one curve a model, with tolerances and bounds where known."""
    models = looks(dict.fromkeys(data["model"]))
    _draw_tolerances(ax, data, models)
    for model, look in models.items():
        rows = data[data["model"] == model]
        least = (ZERO * rows["tolerance"]).fillna(LEFT)
        known = rows[rows["resolved"] & (rows["normalized"] > least)]
        shown = known.iloc[spaced(len(known))]
        marker = look.marker if len(shown) == 1 else ""
        ax.plot(shown["index"], shown["normalized"], **look.line(marker=marker))
        if (~rows["resolved"] & (rows["normalized"] > least)).any():
            mark_unresolved(ax, known.tail(1), "index", "normalized", look)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(0.8, 1.3 * max(data["size"].max(), 2))
    ax.set_xlabel("index $i$")
    ax.set_ylabel(r"$\sigma_i\,/\,\sigma_1$")
    _draw_bounds(ax, data)


def mark_unresolved(ax: Axes, end: pd.DataFrame, x: str, y: str, look: Look) -> None:
    """Draw a hollow circle where a curve ends because its method resolves no further, and explain it in the legend."""
    hollow: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "linestyle": "", "zorder": 4}
    ax.plot(end[x], end[y], color=look.color, **hollow)
    if UNRESOLVED not in ax.get_legend_handles_labels()[1]:
        ax.plot([], [], color="0.3", label=UNRESOLVED, **hollow)


def _draw_tolerances(ax: Axes, data: pd.DataFrame, models: dict[str, Look]) -> None:
    """Draw one line with the band that leaves a rank open; tolerances that differ have a line each, without a band."""
    tolerances = data.groupby("model")["tolerance"].first().dropna()
    if tolerances.empty:
        return
    several = tolerances.max() > ALIKE * tolerances.min()
    if several:
        for model, tolerance in tolerances.items():
            ax.axhline(tolerance, color=models[str(model)].color, linestyle=":", linewidth=0.9, zorder=1)
    else:
        middle = tolerances.median()
        ax.axhspan(middle / MARGIN, middle * MARGIN, color="0.88", zorder=0, linewidth=0)
        ax.axhline(middle, color="0.45", linestyle="--", linewidth=0.9, zorder=1)
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "xytext": (0, 2), "textcoords": "offset points"}
    ax.annotate("tolerances" if several else "tolerance", (0.01, tolerances.max()), **place, **NOTE)


def _draw_bounds(ax: Axes, data: pd.DataFrame) -> None:
    """Draw a vertical line at every bound; the numbers of two neighbours are on its two sides."""
    bounds = sorted(data["bound"].dropna().unique())
    for number, bound in enumerate(bounds):
        ax.axvline(bound, color="0.45", linestyle="-.", linewidth=0.9, zorder=1)
        is_left = len(bounds) > 1 and number % 2 == 0  # and below the curves
        height, side, end = (0.03, "right", "bottom") if is_left else (0.97 - 0.42 * (number // 2 % 2), "left", "top")
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (-2 if is_left else 2, 0)}
        ax.annotate(f"bound {bound:,}", (bound, height), rotation=90, ha=side, va=end, textcoords="offset points",
                    **place, **NOTE)  # fmt: skip


def spaced(size: int) -> NDArray[np.int64]:
    """Return at most `POINTS` places in 0 … size − 1, at equal ratios, with both ends."""
    if not size:
        return np.empty(0, np.int64)
    return np.unique(np.geomspace(1, size, POINTS).round().astype(np.int64)) - 1
