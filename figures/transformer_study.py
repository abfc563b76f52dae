"""One small transformer with several output layers, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.bench.demo_table import interval_text, mean_text
from softmax_bottleneck.results.plotting import HEADS, head_of

from .base import cell, figure, mean_and_spread, table
from .results import Results

LABELS = {
    "softmax": "Softmax",
    "softmax-untied": "Softmax, untied",
    "mos-2": "MoS, K = 2",
    "mos-2-low-rank": "MoS, K = 2, low rank",
    "mos-4": "MoS, K = 4",
    "sigsoftmax": "Sigsoftmax",
    "lms-plif": "LMS-PLIF",
}
"""The heads of the study in their order; all but one share the embeddings with the input."""
REFERENCE = "softmax"
"""The head that the figure compares with."""
STEPS, TIME = "parameters", "time"
"""Training for equal steps, and for equal processor time."""
NEEDS = "bottleneck bench transformer-study --out DIR"


def runs(results: Results) -> pd.DataFrame:
    """Return the runs of the study, one a row: the values of its files, and ``panel``; empty without results."""
    contents = [saved.content for saved in results.of("transformer")]
    data = pd.DataFrame([content for content in contents if content["head"] in LABELS])
    if not len(data):
        return data
    data["order"] = data["head"].map([*LABELS].index)
    data["panel"] = [f"M = {run.vocab:,}, d = {run.size}" for run in data[["vocab", "size"]].itertuples()]
    return data.sort_values(["vocab", "size", "order", "regime", "seed"], ignore_index=True)


@table("transformer-study", needs=NEEDS, first="output layer")
def transformer_study(results: Results) -> Iterator[dict[str, Any]]:
    """Transformers of six layers and of width d, with M byte-pair tokens, on WikiText-2: bits per byte of the first
    50,000 bytes of the test text after equal steps, and after the processor time of the tied Softmax with the steps
    that it allows; numerical rank, 10⁻³-effective rank and the share of the gradient that the output layer passes on,
    all after equal steps; processor seconds a step. Means ± standard deviations of the seeds. Models of one M and d
    have equal numbers of parameters, unless their row says otherwise.
    """
    data = runs(results)
    for (panel, head), rows in data.groupby(["panel", "head"], sort=False) if len(data) else ():
        equal, timed = (rows[rows["regime"] == regime] for regime in (STEPS, TIME))
        mark = "" if equal["equal_parameters"].all() else " (more parameters)"
        yield from _cells(f"{panel}: {LABELS[str(head)]}{mark}", equal, timed)


def _cells(row: str, equal: pd.DataFrame, timed: pd.DataFrame) -> Iterator[dict[str, Any]]:
    ends = [end for ends in equal["rank_interval"] for end in ends]
    effective = [values["1e-3"] for values in equal["effective_rank"]]
    columns: dict[str, tuple[list[float], str]] = {
        "bits per byte": ([*equal["bits_per_byte"]], ".3f"),
        "bits per byte, equal time": ([*timed["bits_per_byte"]], ".3f"),
        "steps, equal time": ([*timed["steps"]], ".0f"),
        "rank": (ends, ""),
        "10⁻³-effective rank": (effective, ""),
        "gradient kept": ([*equal["gradient_kept"]], ".3f"),
        "seconds a step": ([*equal["seconds_a_step"]], ".3f"),
    }
    for column, (values, form) in columns.items():
        if not values:
            yield cell(row, column, "", "")
            continue
        text = mean_text(values, form) if form else interval_text(min(values), max(values))
        yield cell(row, column, "", text, source="measured", **mean_and_spread(values))


def differences(results: Results) -> pd.DataFrame:
    """Return ``panel``, ``head``, ``regime``, ``seed`` and ``difference``."""
    data = runs(results)
    if not len(data):
        return data
    softmax = data[data["head"] == REFERENCE].set_index(["panel", "seed"])["bits_per_byte"]
    pairs = pd.MultiIndex.from_frame(data[["panel", "seed"]])
    data["difference"] = data["bits_per_byte"] - softmax.reindex(pairs).to_numpy()
    shown = data[data["head"] != REFERENCE].dropna(subset=["difference"])
    return shown[["panel", "head", "regime", "seed", "difference"]]


@figure(
    "transformer-study-figure", data=differences, needs=NEEDS, panel="panel", layout={"height": 0.75, "same_x": True}
)
def transformer_study_figure(ax: Axes, data: pd.DataFrame) -> None:
    """Bits per byte of the first 50,000 bytes of the test text, less those of the tied Softmax with the same seed: left
    of the line a head is better. Filled after equal steps, hollow after equal processor time. Means of the seeds, bars
    of one standard deviation. Transformers of six layers on WikiText-2.
    """
    draw_differences(ax, data, {head: label for head, label in LABELS.items() if head != REFERENCE})
    ax.set_xlabel("Δ bits per byte (better ←)")


def draw_differences(ax: Axes, data: pd.DataFrame, labels: Mapping[str, str]) -> None:
    """Draw mean and standard deviation of ``difference`` for each head and ``regime``, a row for each label."""
    heads = [*labels][::-1]
    ax.axvline(0, color="0.6", linewidth=0.8, zorder=1)
    for (head, regime), rows in data.groupby(["head", "regime"]):
        look, filled = HEADS[head_of(str(head)) or ""], regime == STEPS
        place = heads.index(str(head)) + (0.15 if filled else -0.15)
        spread = rows["difference"].std() if len(rows) > 1 else None
        ax.errorbar(
            rows["difference"].mean(), place, xerr=spread, fmt=look.marker, color=look.color, capsize=2,
            markerfacecolor=look.color if filled else "white", zorder=3,
        )  # fmt: skip
    for regime, face in ((STEPS, "0.3"), (TIME, "white")):
        label = "equal steps" if regime == STEPS else "equal time"
        ax.plot([], [], "o", color="0.3", markerfacecolor=face, label=label)
    ax.set_yticks(range(len(heads)), [labels[head] for head in heads])
    ax.set_ylim(-0.6, len(heads) - 0.4)
    ax.set_ylabel("output layer")
