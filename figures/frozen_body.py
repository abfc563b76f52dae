"""Output layers on the hidden states of one pretrained model, as a table and as a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.bench.demo_table import interval_text, mean_text

from .base import cell, figure, mean_and_spread, stacked, table
from .results import Results
from .transformer_study import draw_differences

LABELS = {
    "softmax": "Softmax",
    "softmax-bias": "Softmax with bias",
    "softmax-linear": "Softmax after a linear map",
    "softmax-mlp": "Softmax after an MLP",
    "mos-2": "MoS, K = 2",
    "mos-4": "MoS, K = 4",
    "sigsoftmax": "Sigsoftmax",
    "lms-plif": "LMS-PLIF",
}
"""The heads of the study in their order."""
MEASURED = ("start_perplexity", "rank_interval", "effective_rank")
"""What runs other than those of the search measure."""
NEEDS = "bottleneck bench frozen-body --out DIR"


def runs(results: Results) -> pd.DataFrame:
    """Return the runs with each head's best learning rate, one a row, with what they reach in the Softmax's time.

    ``loss`` is in nats; ``timed`` is that after ``timed_steps``, interpolated in the logarithm of the steps.
    """
    contents = [saved.content for saved in results.of("frozen")]
    rows = [content for content in contents if content["head"] in LABELS]
    data = pd.DataFrame([{**dict.fromkeys(MEASURED), **content} for content in rows])
    if not len(data) or "softmax" not in [*data["head"]]:
        return stacked([])
    data["loss"] = np.log(data["perplexity"])
    seconds = data.groupby("head")["seconds_a_step"].mean()
    data["timed_steps"] = data["steps"] * np.minimum(1, seconds["softmax"] / data["head"].map(seconds).to_numpy())
    data["timed"] = [
        float(np.interp(math.log(steps), [math.log(done) for done, _ in course], [loss for _, loss in course]))
        for steps, course in zip(data["timed_steps"], data["course"], strict=True)
    ]
    best = data[data["seed"] == 0].sort_values("perplexity").groupby("head")["rate"].first()
    data = data[data["rate"] == data["head"].map(best)]
    data["order"] = data["head"].map([*LABELS].index)
    return data.sort_values(["order", "seed"], ignore_index=True)


@table("frozen-body", needs=NEEDS, first="output layer")
def frozen_body(results: Results) -> Iterator[dict[str, Any]]:
    """Output layers on the frozen body of SmolLM2, on WikiText-2: parameters beside W; the best of three learning
    rates; perplexity on the validation text before training, after equal steps and in the processor time of the
    Softmax, with the steps that it allows; numerical and 10⁻³-effective rank of 1,024 contexts after equal steps;
    processor seconds a step. Means ± standard deviations of the seeds.
    """
    data = runs(results)
    for head, rows in data.groupby("head", sort=False) if len(data) else ():
        columns: dict[str, tuple[list[float], str]] = {
            "added parameters": ([rows["added_parameters"].iloc[0]], ",.0f"),
            "learning rate": ([rows["rate"].iloc[0]], ".0e"),
            "before": ([*rows["start_perplexity"].dropna()][:1], ".2f"),
            "equal steps": ([*rows["perplexity"]], ".3f"),
            "equal time": ([*np.exp(rows["timed"])], ".3f"),
            "steps, equal time": ([rows["timed_steps"].mean()], ".0f"),
            "rank": ([end for ends in rows["rank_interval"].dropna() for end in ends], ""),
            "10⁻³-effective rank": ([values["1e-3"] for values in rows["effective_rank"].dropna()], ""),
            "seconds a step": ([*rows["seconds_a_step"]], ".2f"),
        }
        for column, (values, form) in columns.items():
            text = mean_text(values, form) if form or not values else interval_text(min(values), max(values))
            yield cell(LABELS[str(head)], column, "", text, source="measured", **mean_and_spread(values))


def differences(results: Results) -> pd.DataFrame:
    """Return ``head``, ``regime``, ``seed`` and ``difference`` in nats from the Softmax with the same seed."""
    data = runs(results)
    if not len(data):
        return data
    softmax = data["seed"].map(data[data["head"] == "softmax"].set_index("seed")["loss"])
    both = [data.assign(regime=regime, difference=data[loss] - softmax)
            for regime, loss in (("parameters", "loss"), ("time", "timed"))]  # fmt: skip
    shown = pd.concat(both)
    return shown.loc[shown["head"] != "softmax", ["head", "regime", "seed", "difference"]]


@figure("frozen-body-figure", data=differences, needs=NEEDS)
def frozen_body_figure(ax: Axes, data: pd.DataFrame) -> None:
    """Loss in nats on the validation text, less that of the trained Softmax with the same seed: left of the line a
    head is better. Filled after equal steps, hollow after equal processor time. Means of the seeds, bars of one
    standard deviation. Output layers on the frozen body of SmolLM2, on WikiText-2.
    """
    draw_differences(ax, data, {head: label for head, label in LABELS.items() if head != "softmax"})
    ax.set_xlabel("Δ loss, nats (better ←)")
