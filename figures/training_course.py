"""Rank and perplexity over training, as a figure and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.results.plotting import HEADS, head_of
from softmax_bottleneck.results.tables import rank_text

from .base import by_model, cell, figure, table
from .results import SavedResults

NEEDS = "ranks of checkpoints that were kept: bottleneck rank CHECKPOINT --json FAMILY/NAME.epoch-N.json"
DECADE = 10
"""Ratio of ranks from which on their axis is logarithmic."""
ASIDE = 0.08
"""Epochs between the marks of two models, so that equal ranks stand side by side."""
LABELS = {"perplexity": "perplexity − that of {}", "rank": "row-centred rank"}
BASE = "softmax"
"""Head that the others are compared with, where its course is there; otherwise the first one."""
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
"""Digits to exponents: the ε of an effective rank is a power of ten, ``1e-3``."""


def course(results: SavedResults) -> pd.DataFrame:
    """Return ``panel``, ``family``, ``model``, ``epoch``, ``value``, ``low``, ``high``, ``base`` and ``drawn``; seed 0.

    The family is that whose ranked checkpoints cover most epochs, or the last one if none was kept. The rank of a
    finished run stands at the epoch of its weights, those of the best validation. ``drawn`` is the rank, or the
    perplexity less that of the model ``base`` after the same epoch.
    """
    frame = results.frame[results.frame["seed"] == 0]
    validated = frame[(frame["kind"] == "demo") & (frame["split"] == "valid") & (frame["metric"] == "perplexity")]
    best = validated.dropna(subset="epoch").sort_values("value", kind="stable").groupby("source")["epoch"].first()
    finished = frame["source"].map(best).where(frame["kind"] == "demo")
    frame = frame.assign(epoch=frame["epoch"].fillna(finished)).dropna(subset="epoch")
    shown = {("perplexity", "valid"): "perplexity", ("rank_centered", "test"): "rank"}
    panels = [shown.get(place) for place in zip(frame["metric"], frame["split"], strict=True)]
    epochs = pd.to_numeric(frame["epoch"], downcast="integer")
    data = frame.assign(panel=pd.Series(panels, frame.index), epoch=epochs).dropna(subset="panel")
    data = data[["panel", "family", "model", "epoch", "value", "low", "high"]]
    covered = data[data["panel"] == "rank"].groupby("family")["epoch"].nunique()
    family = covered.idxmax() if len(covered) else data["family"][-1:].sum()
    data = data[data["family"] == family].sort_values(["panel", "model", "epoch"], kind="stable")
    data = data.drop_duplicates(["panel", "model", "epoch"], keep="last")  # a checkpoint comes after its run
    models = data.loc[data["panel"] == "perplexity", "model"].unique().tolist()
    base = BASE if BASE in models else next(iter(models), "")
    courses = data[(data["panel"] == "perplexity") & (data["model"] == base)].groupby("epoch")["value"].last()
    less = data["value"] - data["epoch"].map(courses)
    name = HEADS[head].label if (head := head_of(base)) else base
    return data.assign(base=name, drawn=data["value"].where(data["panel"] == "rank", less))


@figure("training-course", data=course, panel="panel", panel_title=lambda panel, rows: "",
        lacks=lambda data: [] if (data["panel"] == "rank").any() else [NEEDS],
        layout={"share_y": False, "height": 0.75})  # fmt: skip
def training_course(ax: Axes, data: pd.DataFrame) -> None:
    """Validation perplexity less the Softmax's after the same epoch, and the rank of the row-centred log-probability
    matrix, over training; bars from the lowest to the highest rank within the interval of tolerances. Marks of one
    epoch stand side by side. Models of the preset family whose ranked checkpoints cover most epochs.
    """
    panel = data["panel"].iloc[0]
    middle = (data["model"].nunique() - 1) / 2
    for place, (look, rows) in enumerate(by_model(data)):
        epochs = rows["epoch"] + (ASIDE * (place - middle) if panel == "rank" else 0.0)
        ax.plot(epochs, rows["drawn"], **look.line(marker=look.marker))
        if panel == "rank":
            ax.vlines(epochs, rows["low"], rows["high"], color=look.color, linewidth=0.8)
    if panel == "rank":
        is_wide = data["high"].max() > DECADE * data["low"].min()
        ax.set_yscale("log" if is_wide else "linear")
        if not is_wide:
            ax.set_ylim(0, max(1.0, 1.08 * data["high"].max()))
    ax.set(xlabel="epoch", ylabel=LABELS[panel].format(data["base"].iloc[0]))


@table("training-course-table", needs=NEEDS)
def training_course_table(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Validation perplexity, ranks and ε-effective ranks of the log-probability matrix after each epoch whose
    checkpoint was measured; an indeterminate rank follows its interval for tolerances ten times larger and smaller.
    """
    frame = results.frame[(results.frame["metric"] == "perplexity") & (results.frame["split"] == "valid")]
    perplexities = frame.groupby(["source", "seed", "epoch"])["value"].last()
    for saved in (each for each in results.of("rank") if each.epoch is not None):
        content, head = saved.content, head_of(saved.model)
        perplexity = perplexities.get((saved.key, saved.seed, saved.epoch))
        row = f"{HEADS[head].label if head else saved.model} ({saved.family}), epoch {saved.epoch}"
        values: list[tuple[str, str, float | None]] = [
            ("contexts", f"{content['contexts']:,}", content["contexts"]),
            ("validation perplexity", "" if perplexity is None else f"{perplexity:.2f}", perplexity),
            ("rank", rank_text([content["rank"]]), content["rank"]["value"]),
            ("row-centred rank", rank_text([content["rank_centered"]]), content["rank_centered"]["value"]),
        ]
        for eps, rank in content["effective_rank"].items():
            text = "unknown" if rank is None else f"{rank:,}"  # of a sketch
            values.append((f"10{eps.removeprefix('1e').translate(RAISED)}-effective rank", text, rank))
        for column, text, value in values:
            yield cell(row, column, "", text, value=value, source=saved.key)
