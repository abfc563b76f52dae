"""LMS paper, figures 2, 3, 6, 7 and 8: what fits to Dirichlet distributions reach, one panel a vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes

from softmax_bottleneck.files import write_bytes
from softmax_bottleneck.plotting import draw_means, looks
from softmax_bottleneck.plotting.style import SCREEN
from softmax_bottleneck.synthetic import Result, summarize
from softmax_bottleneck.synthetic.summary import best

from .base import Figure
from .results import Results

LABELS = {"mode_match": "matching modes, %", "kl": "KL($P^*$ ‖ $Q$), nats"}
SCALES = {"mode_match": 100.0, "kl": 1.0}


class DirichletFigure(Figure):
    """One metric against the embedding size D at one concentration; subclasses say which."""

    alpha: ClassVar[float]
    metric: ClassVar[str]
    panel, panel_title = "vocab", "M = {:,}"
    height = 0.95
    from_zero = True

    @property
    def needs(self) -> str:  # type: ignore[override]
        """Say which command writes its cells."""
        return f"cells with α = {self.alpha:g}: bottleneck synthetic --alpha {self.alpha:g} --json FILE"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return one row a fit: ``vocab``, ``dim``, ``model``, ``seed``, the metric, ``attainable``, ``converged``.

        ``attainable`` is what the fitted embeddings give with the context vectors of least KL (linear softmax).
        """
        cells = [cell for saved in results.of("cells") for cell in saved.content["cells"]]
        return tidy([cell for cell in cells if cell["alpha"] == self.alpha], self.metric)

    def caption(self, data: pd.DataFrame) -> str:
        """Return the title with numbers of contexts and seeds."""
        contexts = ", ".join(f"{rows['contexts'].max():,} for M = {vocab:,}" for vocab, rows in data.groupby("vocab"))
        return (
            f"{self.title} Means of {data['seed'].nunique()} seeds, bands of one standard deviation; contexts: "
            f"{contexts}, where the paper has 100,000. A cross is what the Softmax's fitted embeddings give with the "
            "context vectors of least KL; a hollow marker stands where not all fits met the criterion of convergence."
        )

    def draw(self, ax: Axes, data: pd.DataFrame) -> None:
        """Draw one vocabulary."""
        draw_against_dim(ax, data, self.metric)


def tidy(cells: Iterable[Result], metric: str) -> pd.DataFrame:
    """Return the fits that did not diverge, one row each; see `DirichletFigure.compute`."""
    unique = {tuple(cell[key] for key in ("alpha", "vocab", "dim", "model", "seed")): cell for cell in cells}
    columns = ["vocab", "dim", "model", "seed", "contexts", metric, "attainable", "converged"]
    if not unique:
        return pd.DataFrame(columns=columns)
    summarize(list(unique.values()))  # refuses what has no common mean
    scale = SCALES[metric]
    rows = [
        {
            **{key: cell[key] for key in ("vocab", "dim", "model", "seed", "contexts", "converged")},
            metric: scale * cell[metric],
            "attainable": None if (value := best(cell, metric)) is None else scale * value,
        }
        for cell in unique.values()
        if not cell["diverged"]
    ]
    return pd.DataFrame(rows, columns=columns).sort_values(["vocab", "dim"], kind="stable", ignore_index=True)


def draw_against_dim(ax: Axes, data: pd.DataFrame, metric: str) -> None:
    """Draw a metric against the embedding size, one line a model, from the rows of `tidy` with one M."""
    models = looks(dict.fromkeys(data["model"]))
    for model, look in models.items():
        rows = data[data["model"] == model]
        draw_means(ax, rows, "dim", metric, **look.line(marker=look.marker, markeredgewidth=0))
        means = rows.groupby("dim")[[metric, "attainable", "converged"]].agg(
            {metric: "mean", "attainable": "mean", "converged": "all"}
        )
        unfinished = means[~means["converged"].astype(bool)]
        if len(unfinished):
            hollow: dict[str, Any] = {"markerfacecolor": "white", "color": look.color, "linestyle": "", "zorder": 4}
            ax.plot(unfinished.index, unfinished[metric], look.marker, **hollow)
        reached = means["attainable"].dropna()
        if len(reached):
            size = 1.6 * rcParams["lines.markersize"]
            ax.plot(
                reached.index, reached, "x", color="0.6", markersize=size, zorder=5, label=f"{look.label}, attainable"
            )
    ax.set_xscale("log")
    dims = sorted(data["dim"].unique())
    ax.set_xticks(dims, [str(dim) for dim in dims])
    ax.minorticks_off()
    ax.set_xlabel("embedding size $D$")
    ax.set_ylabel(LABELS[metric])


class _Fresh(DirichletFigure):
    """Fits to Dirichlet distributions."""

    def __init__(self, metric: str) -> None:
        self.metric = metric  # type: ignore[misc]


def save_both(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write ``mode-matching.png`` and ``kl.png`` of one α with their numbers as CSV; return the two paths."""
    paths = [folder / "mode-matching.png", folder / "kl.png"]
    for metric, path in zip(("mode_match", "kl"), paths, strict=True):
        data = tidy(results, metric)
        _Fresh(metric).write(data, path, style=SCREEN)
        write_bytes(path.with_suffix(".csv"), data.to_csv(index=False, lineterminator="\n").encode())
    return paths
