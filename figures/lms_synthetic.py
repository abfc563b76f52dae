"""Ganea et al. 2019, figures 2, 3, 6, 7 and 8: fits to Dirichlet distributions, one panel for each vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, final

import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes

from softmax_bottleneck.plotting import Look, draw_means, looks
from softmax_bottleneck.plotting.style import FORMATS, SCREEN
from softmax_bottleneck.synthetic import Result, summarize
from softmax_bottleneck.synthetic.summary import best

from .base import Figure
from .results import Results

LABELS = {"mode_match": "matching modes, %", "kl": "KL($P^*$ ‖ $Q$), nats"}
ABOUT = {"mode_match": "Contexts whose modes match", "kl": "Mean KL divergence of the fit from the truth"}
SCALES = {"mode_match": 100.0, "kl": 1.0}
KEPT = ("alpha", "vocab", "dim", "model", "seed", "contexts", "converged")
"""Keys of a result that are columns of `tidy`."""
MOST_LEVEL = 3
"""Number of models whose names fit side by side under a panel."""


@final
class DirichletFigure(Figure):
    """One metric against the embedding size D at one concentration.

    Args:
        metric: a key of ``LABELS``.
        alpha: the concentration α.
        number: number of the figure in Ganea et al. 2019; ``None`` for another one.
    """

    panel = "vocab"
    height = 0.95
    from_zero = True

    def __init__(self, metric: str, alpha: float, *, number: int | None = None) -> None:
        self.metric, self.alpha = metric, alpha
        paper = f" (Ganea et al. 2019, figure {number})" if number else ""
        self.about = f"{ABOUT[metric]}, Dirichlet concentration α = {alpha:g}{paper}."
        self.needs = f"cells with α = {alpha:g}: bottleneck synthetic --alpha {alpha:g} --json FILE"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return one row a fit: the columns of ``KEPT``, the metric, and ``attainable``.

        ``attainable`` is the metric of a linear softmax at the context vectors of least KL divergence for its fitted
        embeddings.
        """
        cells = [cell for saved in results.of("cells") for cell in saved.content["cells"]]
        return tidy([cell for cell in cells if cell["alpha"] == self.alpha], self.metric)

    def caption(self, data: pd.DataFrame) -> str:
        """Return the title with numbers of contexts and seeds."""
        contexts = ", ".join(f"{rows['contexts'].max():,} for M = {vocab:,}" for vocab, rows in data.groupby("vocab"))
        return (
            f"{self.title} Means of {data['seed'].nunique()} seeds, bands of one standard deviation; contexts: "
            f"{contexts}, where Ganea et al. 2019 have 100,000. A cross is what the Softmax's fitted embeddings give "
            "with the context vectors of least KL; a hollow marker stands where not all fits met the criterion of "
            "convergence. Fits that diverged have no part in the means."
        )

    def heading(self, data: pd.DataFrame) -> str:
        """Return the concentration and the number of seeds."""
        seeds = data["seed"].nunique()
        return f"Dirichlet α = {data['alpha'].iloc[0]:g}, N contexts, {seeds} seed{'s' if seeds > 1 else ''}"

    def title_of(self, value: object, data: pd.DataFrame, *, lone: bool) -> str:
        """Return M and N."""
        return f"M = {value:,}, N = {data['contexts'].max():,}"

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one vocabulary."""
        draw_against_dim(ax, data, self.metric)


def tidy(cells: Iterable[Result], metric: str) -> pd.DataFrame:
    """Return one row a fit, whose metric is NaN if the fit diverged; see `DirichletFigure.compute`."""
    unique = {
        tuple(cell[key] for key in ("alpha", "vocab", "dim", "model", "seed", "contexts")): cell for cell in cells
    }
    columns = ["alpha", "vocab", "dim", "model", "seed", "contexts", metric, "attainable", "converged"]
    if not unique:
        return pd.DataFrame(columns=columns)
    summarize(list(unique.values()))  # refuses results with different numbers of contexts
    scale = SCALES[metric]
    rows = [
        {
            **{key: cell[key] for key in columns if key in KEPT},
            metric: math.nan if cell["diverged"] else scale * cell[metric],
            "attainable": None if cell["diverged"] or (value := best(cell, metric)) is None else scale * value,
            "converged": cell["converged"] and not cell["diverged"],
        }
        for cell in unique.values()
    ]
    return pd.DataFrame(rows, columns=columns).sort_values(["vocab", "dim"], kind="stable", ignore_index=True)


def draw_against_dim(ax: Axes, data: pd.DataFrame, metric: str) -> None:
    """Draw a metric against the embedding size, one line a model, from the rows of `tidy` with one M.

    With one embedding size there is no line to draw, and the models stand side by side.
    """
    models = looks(dict.fromkeys(data["model"]))
    dims = sorted(data["dim"].unique())
    for place, (model, look) in enumerate(models.items()):
        rows = data[data["model"] == model]
        if len(dims) > 1:
            draw_means(ax, rows, "dim", metric, **look.line(marker=look.marker, markeredgewidth=0))
        else:
            spread = rows[metric].std(ddof=1) if len(rows) > 1 else None
            style: dict[str, Any] = {"color": look.color, "marker": look.marker, "linestyle": "", "capsize": 3}
            ax.errorbar([place], [rows[metric].mean()], None if spread is None else [spread], **style)
    for place, (model, look) in enumerate(models.items()):
        rows = data[data["model"] == model]
        _draw_marks(ax, rows.assign(place=rows["dim"] if len(dims) > 1 else place), metric, look)
    if len(dims) > 1:
        ax.set_xscale("log")
        ax.set_xticks(dims, [str(dim) for dim in dims])
        ax.set_xlabel("embedding size $D$")
    else:
        tilted: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(models) > MOST_LEVEL else {}
        ax.set_xticks(range(len(models)), [look.label for look in models.values()], **tilted)
        ax.set_xlim(-0.6, len(models) - 0.4)
        ax.set_xlabel(f"embedding size $D$ = {dims[0]}")
    ax.minorticks_off()
    ax.set_ylabel(LABELS[metric])


def _draw_marks(ax: Axes, rows: pd.DataFrame, metric: str, look: Look) -> None:
    """Draw hollow markers where a model's fits did not all converge, and crosses at what is attainable."""
    means = rows.groupby("place").agg({metric: "mean", "attainable": "mean", "converged": "all"})
    unfinished = means[~means["converged"].astype(bool)]
    if len(unfinished):
        hollow: dict[str, Any] = {"markerfacecolor": "white", "linestyle": "", "zorder": 4}
        ax.plot(unfinished.index, unfinished[metric], look.marker, color=look.color, **hollow)
        ax.plot([], [], "o", color="0.3", label="not all seeds converged", **hollow)
    reached = means["attainable"].dropna()
    if len(reached):
        size = 1.6 * rcParams["lines.markersize"]
        ax.plot(reached.index, reached, "x", color="0.6", markersize=size, zorder=5, label=f"{look.label}, attainable")


def save_figures(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write the two figures of every α as PNG, PDF and SVG, with their numbers as CSV; return the paths.

    Of one model at one D there is nothing to compare, and only the numbers are written.
    """
    paths: list[Path] = []
    for alpha in dict.fromkeys(result["alpha"] for result in results):
        for metric, name in (("mode_match", "mode-matching"), ("kl", "kl")):
            data = tidy([result for result in results if result["alpha"] == alpha], metric)
            if len(data):
                stem = folder / f"{name}-alpha-{alpha:g}"
                several = len(data.drop_duplicates(["vocab", "dim", "model"])) > 1
                paths += DirichletFigure(metric, alpha).save(
                    data, stem, formats=(*(FORMATS if several else ()), "csv"), style=SCREEN
                )
    return paths


FIGURES = {
    f"lms-figure-{number}": DirichletFigure(metric, alpha, number=number)
    for number, metric, alpha in (
        (2, "mode_match", 0.1),
        (3, "kl", 0.1),
        (6, "mode_match", 0.01),
        (7, "kl", 0.01),
        (8, "mode_match", 1.0),
    )
}
