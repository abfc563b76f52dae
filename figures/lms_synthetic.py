"""Ganea et al. 2019, figures 2, 3, 6, 7 and 8: fits to Dirichlet distributions, one panel for each vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes

from softmax_bottleneck.results.plotting import Look, draw_means
from softmax_bottleneck.results.plotting.looks import PALETTE
from softmax_bottleneck.results.plotting.style import FORMATS, STYLES
from softmax_bottleneck.synthetic import CellResult
from softmax_bottleneck.synthetic.summary import fits

from .base import ENTRIES, Figure, by_model, figure, stacked
from .results import SavedResults

LABELS = {"mode_match": "matching modes, %", "kl": "KL($P^*$ ‖ $Q$), nats"}
ABOUT = {"mode_match": "Contexts whose modes match", "kl": "Mean KL divergence of the fit from the truth"}
SCALES = {"mode_match": 100.0, "kl": 1.0}
KEYS = ("alpha", "vocab", "dim", "model", "seed", "contexts")
"""Keys that tell results apart."""
LEAST_EXCESS = 1e-9
"""Smallest share of a divergence that float64 tells from 0."""
APART = 5
"""Largest ratio of neighbouring embedding sizes that a line joins: over a wider gap a straight line shows no trend."""
MOST_LEVEL = 3
"""Number of models whose names fit side by side under a panel."""


def dirichlet_figure(metric: str, alpha: float, *, number: int | None = None) -> Figure:
    """Return a figure of one metric against the embedding size D at one α, perhaps one of Ganea et al. 2019.

    Its data are one row a fit: the columns of ``KEYS``, the metric, ``attainable`` (the metric of a linear softmax at
    the context vectors of least KL divergence for its fitted embeddings) and ``converged``.
    """
    paper = f" (Ganea et al. 2019, figure {number})" if number else ""
    return Figure(
        compute=lambda results: tidy([fit for fit in _fits(results) if fit["alpha"] == alpha], metric),
        draw=partial(draw_against_dim, metric=metric),
        title=f"{ABOUT[metric]}, Dirichlet concentration α = {alpha:g}{paper}.",
        needs=f"cells with α = {alpha:g}: bottleneck synthetic --alpha {alpha:g} --json FILE",
        describe=_describe,
        heading=_heading,
        panel="vocab",
        panel_title=lambda vocab, rows: f"M = {vocab:,}, N = {rows['contexts'].max():,}",
        lone_title=True,
        layout={"height": 0.95, "from_zero": True},
    )


def _fits(results: SavedResults) -> list[CellResult]:
    return [fit for saved in results.of("synthetic") for fit in saved.content["cells"]]


def _describe(data: pd.DataFrame) -> str:
    """Return the numbers of contexts and seeds."""
    contexts = ", ".join(f"{rows['contexts'].max():,} for M = {vocab:,}" for vocab, rows in data.groupby("vocab"))
    return (
        f"Means of {data['seed'].nunique()} seeds, bands of one standard deviation; contexts: "
        f"{contexts}, where Ganea et al. 2019 have 100,000. A cross is what the Softmax's fitted embeddings give "
        "with the context vectors of least KL. A hollow marker stands where not all fits met the criterion of "
        f"convergence{_claim(data)}. No line joins points whose D differ by more than a factor of {APART}. Fits that "
        "diverged have no part in the means."
    )


def _claim(data: pd.DataFrame) -> str:
    """Return how many of the points that differ most from the Softmax, by half of the most at least, are hollow."""
    metric = data.columns[len(KEYS)]
    points = data.groupby(["vocab", "dim", "model"]).agg({metric: "mean", "converged": "all"}).reset_index()
    is_softmax = points["model"] == "softmax"
    others = points[~is_softmax].merge(points[is_softmax], on=["vocab", "dim"], suffixes=("", "_softmax"))
    lead = (others[metric] - others[f"{metric}_softmax"]).abs()
    clear = others[lead > lead.max() / 2]
    if clear.empty:
        return ""
    hollow = len(clear) - int(clear["converged"].sum())
    most = f"; of the {len(clear)} points that differ most from the Softmax"
    if not hollow:
        return f"{most}, none is hollow"
    return f"{most}, {hollow} {'is' if hollow == 1 else 'are'} hollow: what the heads can reach there is open"


def _heading(data: pd.DataFrame) -> str:
    """Return the concentration and the number of seeds."""
    seeds = data["seed"].nunique()
    return f"Dirichlet α = {data['alpha'].iloc[0]:g}, N contexts, {seeds} seed{'s' if seeds > 1 else ''}"


def tidy(cells: Iterable[CellResult], metric: str) -> pd.DataFrame:
    """Return one row a fit, whose metric is NaN if the fit diverged; see `dirichlet_figure`."""
    data = fits([*{tuple(cell[key] for key in KEYS): cell for cell in cells}.values()])
    ended = ~data["diverged"].astype(bool)
    data[metric] = SCALES[metric] * data[metric].where(ended)
    data["attainable"] = SCALES[metric] * data[f"best_{metric}"].where(ended)
    data["converged"] &= ended
    columns = [*KEYS, metric, "attainable", "converged"]
    return data[columns].sort_values(["vocab", "dim"], kind="stable", ignore_index=True)


def draw_against_dim(ax: Axes, data: pd.DataFrame, metric: str) -> None:
    """Draw a metric against the embedding size, one line a model, from the rows of `tidy` with one M.

    With one embedding size a line cannot be drawn, and the models stand side by side.
    """
    dims, models = sorted(data["dim"].unique()), [*by_model(data)]
    for place, (look, rows) in enumerate(models):
        if len(dims) > 1:
            for _, part in rows.groupby((rows["dim"] / rows["dim"].shift()).gt(APART).cumsum()):
                draw_means(ax, part, "dim", metric, **look.line(marker=look.marker, markeredgewidth=0))
        else:
            spread = [rows[metric].std()] if len(rows) > 1 else None
            ax.errorbar([place], [rows[metric].mean()], spread, fmt=look.marker, color=look.color, capsize=3)
    for place, (look, rows) in enumerate(models):
        _draw_marks(ax, rows.assign(place=rows["dim"] if len(dims) > 1 else place), metric, look)
    if len(dims) > 1:
        ax.set_xscale("log")
        ax.set_xticks(dims, [str(dim) for dim in dims])
        ax.set_xlabel("embedding size $D$")
    else:
        tilted: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(models) > MOST_LEVEL else {}
        ax.set_xticks(range(len(models)), [look.label for look, _ in models], **tilted)
        ax.set_xlim(-0.6, len(models) - 0.4)
        ax.set_xlabel(f"embedding size $D$ = {dims[0]}")
    ax.minorticks_off()
    ax.set_ylabel(LABELS[metric])


def _draw_marks(ax: Axes, rows: pd.DataFrame, metric: str, look: Look) -> None:
    """Draw hollow markers where a model's fits did not all converge, and crosses at the best for their embeddings."""
    means = rows.groupby("place").agg({metric: "mean", "attainable": "mean", "converged": "all"})
    unfinished = means[~means["converged"].astype(bool)]
    if len(unfinished):
        hollow: dict[str, Any] = {"markerfacecolor": "white", "linestyle": "", "zorder": 4}
        ax.plot(unfinished.index, unfinished[metric], look.marker, color=look.color, **hollow)
        ax.plot([], [], "o", color="0.3", label="not all fits converged", **hollow)
    reached = means["attainable"].dropna()
    if len(reached):
        size = 1.6 * rcParams["lines.markersize"]
        label = f"{look.label}, best for its W"
        ax.plot(reached.index, reached, "x", color="0.6", markersize=size, zorder=5, label=label)


def save_figures(results: Sequence[CellResult], folder: Path) -> list[Path]:
    """Write the two figures of every α as PNG, PDF and SVG, with their numbers as CSV; return the paths.

    One model at one D cannot be compared, and only its numbers are written.
    """
    paths: list[Path] = []
    for alpha in dict.fromkeys(result["alpha"] for result in results):
        for metric, name in (("mode_match", "mode-matching"), ("kl", "kl")):
            data = tidy([result for result in results if result["alpha"] == alpha], metric)
            if len(data):
                stem = folder / f"{name}-alpha-{alpha:g}"
                several = len(data.drop_duplicates(["vocab", "dim", "model"])) > 1
                paths += dirichlet_figure(metric, alpha).save(
                    data, stem, formats=(*(FORMATS if several else ()), "csv"), style=STYLES["screen"]
                )
    return paths


def attainable_ratios(results: SavedResults) -> pd.DataFrame:
    """Return ``vocab``, ``alpha``, ``dim``, ``seed`` and ``excess``."""
    cells = _fits(results)
    alphas = sorted({cell["alpha"] for cell in cells})
    data = stacked(tidy([cell for cell in cells if cell["alpha"] == alpha], "kl") for alpha in alphas)
    if not len(data):
        return data
    data = data.dropna(subset=["attainable"]).assign(excess=lambda fits: 1 - fits["attainable"] / fits["kl"])
    return data[["vocab", "alpha", "dim", "seed", "excess"]]


@figure("attainable-kl", data=attainable_ratios, layout={"height": 0.95}, panel="vocab",
        needs="cells of a linear Softmax: bottleneck synthetic --alpha 0.1 --json FILE",
        panel_title=lambda vocab, rows: f"M = {vocab:,}")  # fmt: skip
def attainable_kl(ax: Axes, data: pd.DataFrame) -> None:
    """Share of a linear Softmax's fitted KL divergence that optimal context vectors for its fitted embeddings would
    remove. Where it is small, gradient descent found almost optimal context vectors; it is near 1 where D is so large
    that the fitted divergence itself is almost 0. Shares below 10⁻⁹ are roundoff and not drawn. Means of the seeds,
    bands of one standard deviation.
    """
    thick, large = rcParams["lines.linewidth"], rcParams["lines.markersize"]
    styles = zip(data.groupby("alpha"), PALETTE, ("-", "--", ":"), ("o", "s", "^"), (1.8, 1.2, 0.7), strict=False)
    for (alpha, rows), color, dashes, marker, size in styles:  # curves that coincide are all seen
        look = {"linestyle": dashes, "linewidth": size * thick, "marker": marker, "markersize": size * large}
        shown = rows[rows["excess"] > LEAST_EXCESS]
        draw_means(ax, shown, "dim", "excess", color=color, markeredgewidth=0, label=f"α = {alpha:g}", **look)
    ax.set(xscale="log", yscale="log")
    dims = sorted(data["dim"].unique())
    ax.set_xticks(dims, [str(dim) for dim in dims])
    ax.minorticks_off()
    ax.set(xlabel="embedding size $D$", ylabel="avoidable share of the KL")


for _number, _metric, _alpha in (
    (2, "mode_match", 0.1),
    (3, "kl", 0.1),
    (6, "mode_match", 0.01),
    (7, "kl", 0.01),
    (8, "mode_match", 1.0),
):
    ENTRIES[f"lms-figure-{_number}"] = dirichlet_figure(_metric, _alpha, number=_number)
