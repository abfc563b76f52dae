"""Rank and perplexity over training, as a figure and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.bench.demo_table import rank_text
from softmax_bottleneck.results.plotting import HEADS, head_of, looks

from .base import cell, figure, table
from .results import CHECKPOINT, Results, Saved

NEEDS = "ranks of checkpoints that were kept: bottleneck rank CHECKPOINT --json FAMILY/NAME.epoch-N.json"
DECADE = 10
"""Ratio of ranks from which on their axis is logarithmic."""
ASIDE = 0.05
"""Epochs between the marks of two models, so that equal ranks stand side by side."""
LABELS = {"perplexity": "validation perplexity", "rank": "row-centred rank"}
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
"""Digits to exponents: the ε of an effective rank is a power of ten, ``1e-3``."""


def course(results: Results) -> pd.DataFrame:
    """Return ``panel``, ``family``, ``model``, ``epoch``, ``value``, ``low`` and ``high`` of one family, seed 0.

    It is the family with most checkpoints, or the last one if none was kept.
    """
    rows = []
    for saved in results.of("report"):
        family, _, model = saved.key.rpartition("/")
        for row in saved.content.get("history", []) if saved.seed == 0 else []:
            place = {"family": family, "model": model, "epoch": row["epoch"]}
            rows.append({"panel": "perplexity", **place, "value": row["valid_perplexity"]})
    for saved in results.of(CHECKPOINT):
        family, _, model = saved.key.rpartition("/")
        rank = {key: saved.content["rank_centered"][key] for key in ("value", "low", "high")}
        rows.append({"panel": "rank", "family": family, "model": model, "epoch": saved.epoch, **rank})
    columns = ["panel", "family", "model", "epoch", "value", "low", "high"]
    data = pd.DataFrame(rows, columns=columns)
    return data[data["family"].isin(_most_ranked(data))].sort_values(["panel", "model", "epoch"], kind="stable")


def _most_ranked(data: pd.DataFrame) -> list[str]:
    """Return the family with most ranks; without ranks the last family, and no family without data."""
    ranked = data.loc[data["panel"] == "rank", "family"]
    return [*ranked.mode()[:1]] if len(ranked) else [*data["family"][-1:]]


def _unranked(data: pd.DataFrame) -> list[str]:
    return [] if (data["panel"] == "rank").any() else [NEEDS]


@figure("training-course", data=course, lacks=_unranked, panel="panel", panel_title=lambda panel, rows: "",
        share_y=False, height=0.75)  # fmt: skip
def training_course(ax: Axes, data: pd.DataFrame) -> None:
    """Validation perplexity, and the rank of the row-centred log-probability matrix, over training; bars from the
    lowest to the highest rank within the interval of tolerances. Marks of one epoch stand side by side. Models of the
    preset family ``ptb-fast`` (the papers' sizes on Penn Treebank), or of another if more of its checkpoints were
    ranked.
    """
    panel = data["panel"].iloc[0]
    models = looks(dict.fromkeys(data["model"]))
    for place, (model, look) in enumerate(models.items()):
        rows = data[data["model"] == model]
        aside = ASIDE * (place - (len(models) - 1) / 2) if panel == "rank" else 0.0
        ax.plot(rows["epoch"] + aside, rows["value"], **look.line(marker=look.marker))
        if panel == "rank":
            ax.vlines(rows["epoch"] + aside, rows["low"], rows["high"], color=look.color, linewidth=0.8)
    if panel == "rank":
        is_wide = data["high"].max() > DECADE * data["low"].min()
        ax.set_yscale("log" if is_wide else "linear")
        if not is_wide:
            ax.set_ylim(0, 1.08 * data["high"].max())
    ax.set(xlabel="epoch", ylabel=LABELS[panel])


@table("training-course-table", needs=NEEDS)
def training_course_table(results: Results) -> Iterator[dict[str, Any]]:
    """Validation perplexity, ranks and ε-effective ranks of the log-probability matrix after each epoch whose
    checkpoint was measured; an indeterminate rank follows its interval for tolerances ten times larger and smaller.
    """
    for saved in results.of(CHECKPOINT):
        yield from _cells(saved, _perplexity(results, saved))


def _perplexity(results: Results, saved: Saved) -> float | None:
    """Return the last validation perplexity of the checkpoint's epoch."""
    reports = [report for report in results.of("report", saved.key) if report.seed == saved.seed]
    rows = [row for report in reports for row in report.content.get("history", [])]
    return next((row["valid_perplexity"] for row in reversed(rows) if row["epoch"] == saved.epoch), None)


def _cells(saved: Saved, perplexity: float | None) -> Iterator[dict[str, Any]]:
    family, _, name = saved.key.rpartition("/")
    head = head_of(name)
    row = f"{HEADS[head].label if head else name} ({family}), epoch {saved.epoch}"
    content = saved.content
    ranks = {"rank": content["rank"], "row-centred rank": content["rank_centered"]}
    texts: dict[str, tuple[str, float | None]] = {
        "contexts": (f"{content['contexts']:,}", content["contexts"]),
        "validation perplexity": ("" if perplexity is None else f"{perplexity:.2f}", perplexity),
        **{column: (rank_text([rank]), rank["value"]) for column, rank in ranks.items()},
        **{
            f"10{eps.removeprefix('1e').translate(RAISED)}-effective rank": (f"{rank:,}", rank)
            for eps, rank in content["effective_rank"].items()
        },
    }
    for column, (text, value) in texts.items():
        yield cell(row, column, "", text, value=value, source=saved.key)
