"""The studies in ``notebooks/studies``: output layers of small transformers, on a frozen body, and on SpamLang."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.results.plotting import HEADS, head_of
from softmax_bottleneck.results.tables import interval_text, mean_text

from .base import cell, figure, mean_and_spread, table
from .results import SavedResults

TRANSFORMERS = {
    "softmax": "Softmax",
    "softmax-untied": "Softmax, untied",
    "mos-2": "MoS, K = 2",
    "mos-2-low-rank": "MoS, K = 2, low rank",
    "mos-4": "MoS, K = 4",
    "sigsoftmax": "Sigsoftmax",
    "lms-plif": "LMS-PLIF",
}
"""Labels of the heads of small transformers, in their order; all but one share the embeddings with the input."""
FROZEN = {
    "softmax": "Softmax",
    "softmax-bias": "Softmax with bias",
    "softmax-linear": "Softmax after a linear map",
    "softmax-mlp": "Softmax after an MLP",
    "mos-2": "MoS, K = 2",
    "mos-4": "MoS, K = 4",
    "sigsoftmax": "Sigsoftmax",
    "lms-plif": "LMS-PLIF",
}
"""Labels of the heads on the frozen body, in their order."""
STEPS, TIME = "parameters", "time"
"""Training for equal steps, and for equal processor time."""
LATER = ("start_perplexity", "rank_interval", "effective_rank")
"""What runs measure that are not of the search for a learning rate."""
NEEDS = "python notebooks/studies/transformer.py --out DIR"
FROZEN_NEEDS = "python notebooks/studies/frozen_body.py --out DIR"


def _runs(results: SavedResults, kind: str, labels: Mapping[str, str]) -> pd.DataFrame:
    """Return the runs of a study, one a row: the values of its files, and the ``order`` of the heads."""
    contents = [saved.content for saved in results.of(kind) if saved.content["head"] in labels]
    data = pd.DataFrame([{**dict.fromkeys(LATER), **content} for content in contents])
    return data.assign(order=data["head"].map([*labels].index)) if len(data) else data


def _transformers(results: SavedResults) -> pd.DataFrame:
    """Return the runs of the small transformers, with ``panel`` and ``value``, the bits per byte."""
    data = _runs(results, "transformer-study", TRANSFORMERS)
    if not len(data):
        return data
    data["panel"] = [f"M = {run.vocab:,}, d = {run.size}" for run in data[["vocab", "size"]].itertuples()]
    data["value"] = data["bits_per_byte"]
    return data.sort_values(["vocab", "size", "order", "regime", "seed"], ignore_index=True)


def _frozen(results: SavedResults) -> pd.DataFrame:
    """Return each run on the frozen body twice, with its head's best learning rate.

    ``value`` is the loss in nats after ``timed_steps``: all of them, and those in the Softmax's time, interpolated in
    the logarithm of the steps.
    """
    data = _runs(results, "frozen-body", FROZEN)
    if not len(data) or "softmax" not in [*data["head"]]:
        return data[:0]
    best = data[data["seed"] == 0].sort_values("perplexity").groupby("head")["rate"].first()
    seconds = data.groupby("head")["seconds_a_step"].mean()
    share = np.minimum(1, seconds["softmax"] / data["head"].map(seconds).to_numpy())
    both = pd.concat(
        [
            data.assign(panel="", regime=STEPS, timed_steps=data["steps"].astype(float)),
            data.assign(panel="", regime=TIME, timed_steps=data["steps"] * share),
        ]
    )
    both["value"] = [
        float(np.interp(math.log(steps), [math.log(done) for done, _ in course], [loss for _, loss in course]))
        for steps, course in zip(both["timed_steps"], both["course"], strict=True)
    ]
    both = both[both["rate"] == both["head"].map(best)]
    return both.sort_values(["order", "regime", "seed"], ignore_index=True)


def _cells(row: str, columns: Mapping[str, tuple[Sequence[float], str]]) -> Iterator[dict[str, Any]]:
    """Yield a row of a table: of each column the mean of its values in a format, or without one their interval."""
    for column, (values, form) in columns.items():
        text = mean_text(values, form) if form or not values else interval_text(min(values), max(values))
        yield cell(row, column, "", text, source="measured", **mean_and_spread(values))


def _ranks(rows: pd.DataFrame) -> dict[str, tuple[list[float], str]]:
    """Return the columns of the runs' ranks."""
    return {
        "rank": ([end for ends in rows["rank_interval"].dropna() for end in ends], ""),
        "10⁻³-effective rank": ([values["1e-3"] for values in rows["effective_rank"].dropna()], ""),
    }


@table("transformer-study", needs=NEEDS, first="output layer")
def transformer_study(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Transformers of six layers and of width d, with M byte-pair tokens, on WikiText-2: bits per byte of the first
    50,000 bytes of the test text after equal steps, and after the processor time of the tied Softmax with the steps
    that it allows; numerical rank, 10⁻³-effective rank and the share of the gradient that the output layer passes on,
    all after equal steps; processor seconds a step. Means ± standard deviations of the seeds. Models of one M and d
    have equal numbers of parameters, unless their row says otherwise.
    """
    data = _transformers(results)
    for (panel, head), rows in data.groupby(["panel", "head"], sort=False) if len(data) else ():
        equal, timed = (rows[rows["regime"] == regime] for regime in (STEPS, TIME))
        mark = "" if equal["equal_parameters"].all() else " (more parameters)"
        columns = {
            "bits per byte": ([*equal["value"]], ".3f"),
            "bits per byte, equal time": ([*timed["value"]], ".3f"),
            "steps, equal time": ([*timed["steps"]], ".0f"),
            **_ranks(equal),
            "gradient kept": ([*equal["gradient_kept"]], ".3f"),
            "seconds a step": ([*equal["seconds_a_step"]], ".3f"),
        }
        yield from _cells(f"{panel}: {TRANSFORMERS[str(head)]}{mark}", columns)


@table("frozen-body", needs=FROZEN_NEEDS, first="output layer")
def frozen_body(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Output layers on the frozen body of SmolLM2, on WikiText-2: parameters beside W; the best of three learning
    rates; perplexity on the validation text before training, after equal steps and in the processor time of the
    Softmax, with the steps that it allows; numerical and 10⁻³-effective rank of 1,024 contexts after equal steps;
    processor seconds a step. Means ± standard deviations of the seeds.
    """
    data = _frozen(results)
    for head, rows in data.groupby("head", sort=False) if len(data) else ():
        equal, timed = (rows[rows["regime"] == regime] for regime in (STEPS, TIME))
        columns = {
            "added parameters": ([*equal["added_parameters"]][:1], ",.0f"),
            "learning rate": ([*equal["rate"]][:1], ".0e"),
            "before": ([*equal["start_perplexity"].dropna()][:1], ".2f"),
            "equal steps": ([*equal["perplexity"]], ".3f"),
            "equal time": ([*np.exp(timed["value"])], ".3f"),
            "steps, equal time": ([timed["timed_steps"].mean()], ".0f"),
            **_ranks(equal),
            "seconds a step": ([*equal["seconds_a_step"]], ".2f"),
        }
        yield from _cells(FROZEN[str(head)], columns)


def differences(data: pd.DataFrame) -> pd.DataFrame:
    """Return ``panel``, ``head``, ``regime``, ``seed`` and ``difference``, the value less that of the Softmax with the
    same seed after equal steps.
    """
    if not len(data):
        return data
    softmax = data[(data["head"] == "softmax") & (data["regime"] == STEPS)][["panel", "seed", "value"]]
    both = data[data["head"] != "softmax"].merge(softmax, on=["panel", "seed"], suffixes=("", "_softmax"))
    both["difference"] = both["value"] - both["value_softmax"]
    return both[["panel", "head", "regime", "seed", "difference"]]


@figure("transformer-study-figure", data=lambda results: differences(_transformers(results)), needs=NEEDS,
        panel="panel", layout={"height": 0.75, "same_x": True})  # fmt: skip
def transformer_study_figure(ax: Axes, data: pd.DataFrame) -> None:
    """Bits per byte of the first 50,000 bytes of the test text, less those of the tied Softmax with the same seed: left
    of the line a head is better. Filled after equal steps, hollow after equal processor time. Means of the seeds, bars
    of one standard deviation. Transformers of six layers on WikiText-2.
    """
    _draw_differences(ax, data, TRANSFORMERS, "Δ bits per byte (better ←)")


@figure("frozen-body-figure", data=lambda results: differences(_frozen(results)), needs=FROZEN_NEEDS)
def frozen_body_figure(ax: Axes, data: pd.DataFrame) -> None:
    """Loss in nats on the validation text, less that of the trained Softmax with the same seed: left of the line a
    head is better. Filled after equal steps, hollow after equal processor time. Means of the seeds, bars of one
    standard deviation. Output layers on the frozen body of SmolLM2, on WikiText-2.
    """
    _draw_differences(ax, data, FROZEN, "Δ loss, nats (better ←)")


def _draw_differences(ax: Axes, data: pd.DataFrame, labels: Mapping[str, str], xlabel: str) -> None:
    """Draw mean and standard deviation of ``difference`` for each head but the Softmax, and each ``regime``."""
    heads = [*labels][:0:-1]
    ax.axvline(0, color="0.6", linewidth=0.8, zorder=1)
    for (head, regime), rows in data.groupby(["head", "regime"]):
        look, filled = HEADS[head_of(str(head)) or ""], regime == STEPS
        place = heads.index(str(head)) + (0.15 if filled else -0.15)
        spread = rows["difference"].std() if len(rows) > 1 else None
        ax.errorbar(
            rows["difference"].mean(), place, xerr=spread, fmt=look.marker, color=look.color, capsize=2,
            markerfacecolor=look.color if filled else "white", zorder=3,
        )  # fmt: skip
    for label, face in (("equal steps", "0.3"), ("equal time", "white")):
        ax.plot([], [], "o", color="0.3", markerfacecolor=face, label=label)
    ax.set_yticks(range(len(heads)), [labels[head] for head in heads])
    ax.set(ylim=(-0.6, len(heads) - 0.4), xlabel=xlabel, ylabel="output layer")


def learned(results: SavedResults) -> pd.DataFrame:
    """Return ``vocab``, ``size``, ``head``, ``symbols`` and ``share``, the loss over that of a uniform guess."""
    data = pd.DataFrame([case for saved in results.of("spam") for case in saved.content["cases"].values()])
    return data.assign(share=data["nats"] / data["chance"]).sort_values(["size", "vocab"]) if len(data) else data


@figure("spam", data=learned, needs="python notebooks/studies/spam.py FILE",
        panel="size", panel_title=lambda size, rows: f"d = {size}")  # fmt: skip
def spam(ax: Axes, data: pd.DataFrame) -> None:
    """Loss of the repeated symbol over that of a uniform guess after equal training on SpamLang, in which every text
    repeats one symbol: 0 is learned, 1 is not. With texts of all M symbols, a symbol of M = 100,000 is seen a hundredth
    as often as one of M = 1,000; with texts of 1,000 symbols, only the output layer grows. One seed.
    """
    fewest = data["symbols"].min()
    for head, rows in data.groupby("head", sort=False):
        look = HEADS[str(head)]
        for part, dashes in ((rows["symbols"] == rows["vocab"], "-"), (rows["symbols"] == fewest, "--")):
            ax.plot(
                rows[part]["vocab"], rows[part]["share"], dashes, color=look.color, marker=look.marker,
                label=look.label if dashes == "-" else None,
            )  # fmt: skip
    for dashes, texts in (("-", "texts of all M symbols"), ("--", f"texts of {fewest:,} symbols")):
        ax.plot([], [], dashes, color="0.3", label=texts)
    ax.set_xscale("log")
    ax.set_ylim(-0.02, max(ax.get_ylim()[1], 1.05 * data["share"].max()))  # both panels share it
    ax.set(xlabel="M", ylabel="loss / loss of a guess")
