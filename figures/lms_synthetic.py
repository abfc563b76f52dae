"""LMS paper, figures 2, 3, 6, 7 and 8: mode matching and KL divergence of saved cells, one panel a vocabulary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.files import write_bytes
from softmax_bottleneck.plotting import PAPER, save_figure
from softmax_bottleneck.plotting.synthetic import draw_against_dim
from softmax_bottleneck.synthetic import Result, summarize

PANEL, LEGEND = (2.7, 2.7), 1.7
"""Inches, and those that the legend takes."""
FILES = {"mode_match": "mode-matching.png", "kl": "kl.png"}


@dataclass(frozen=True)
class LMSFigure:
    """One of the five figures."""

    alpha: float
    """The Dirichlet concentration."""
    metric: str
    """``"mode_match"`` or ``"kl"``."""

    def compute(self, folder: Path) -> pd.DataFrame:
        """Return the summary of the cells with this α in the JSON files of ``bottleneck synthetic`` in a folder."""
        results: list[Result] = []
        for file in sorted(folder.glob("*.json")):
            content = json.loads(file.read_text(encoding="utf-8"))
            results += [result for result in content.get("cells", []) if result["alpha"] == self.alpha]
        if not results:
            raise ConfigurationError(
                f"{folder} holds no cells with alpha {self.alpha:g}: write them with "
                f"'bottleneck synthetic --alpha {self.alpha:g} --json FILE'"
            )
        return summarize(results)

    def draw(self, axes: Mapping[int, Axes], result: pd.DataFrame) -> None:
        """Draw one panel for each vocabulary size M."""
        draw_panels(axes, result, self.metric)

    def save(self, result: pd.DataFrame, *paths: Path) -> None:
        """Write the figure to every path, and the numbers in it as a CSV file beside the first."""
        save(result, self.metric, *paths)


def draw_panels(axes: Mapping[int, Axes], result: pd.DataFrame, metric: str) -> None:
    """Draw one panel for each vocabulary size M; the legend stands beside the last."""
    for vocab, ax in axes.items():
        draw_against_dim(ax, result[result["vocab"] == vocab], metric)
        ax.set_title(f"M = {vocab:,}")
    panels = list(axes.values())
    for ax in panels:
        ax.set_ylim(bottom=0)  # only now: a limit ends the scaling of all panels that share the axis
        ax.label_outer()
    panels[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)


def save(result: pd.DataFrame, metric: str, *paths: Path) -> None:
    """Write the panels of one metric to every path, and the numbers as a CSV file beside the first."""
    vocabs = sorted(int(vocab) for vocab in result["vocab"].unique())
    with mpl.rc_context(PAPER):
        figure, axes = plt.subplots(
            1, len(vocabs), figsize=(PANEL[0] * len(vocabs) + LEGEND, PANEL[1]), sharey=True, squeeze=False
        )
        try:
            draw_panels(dict(zip(vocabs, axes[0], strict=True)), result, metric)
            for path in paths:
                save_figure(figure, path)
        finally:
            plt.close(figure)
    write_bytes(paths[0].with_suffix(".csv"), result.to_csv(index=False, lineterminator="\n").encode())


def save_both(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write ``mode-matching.png`` and ``kl.png`` with their numbers; return the two paths."""
    summary = summarize(results)
    for metric, name in FILES.items():
        save(summary, metric, folder / name)
    return [folder / name for name in FILES.values()]
