"""Yang et al. 2018: table 7 drawn, the settings of tables 8 to 10, and the examples of table 14."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.evaluation.dynamic import BATCH_SIZE, published_dynamic
from softmax_bottleneck.language_models import backbones
from softmax_bottleneck.results.plotting import HEADS, head_of
from softmax_bottleneck.results.plotting.looks import DASHES
from softmax_bottleneck.results.published import tables
from softmax_bottleneck.training import PRESETS

from .base import ENTRIES, cell, figure, table
from .published_tables import CORPORA, DATA, unmeasured
from .results import SavedResults

LABELS = {"rank": "rank", "perplexity": "perplexity, %"}
PUBLISHED = "0.45"
"""Grey of the published numbers."""
FULL_RANK = 10_000
CONTEXT = 60
"""Characters of a context of table 14 that are shown."""
EXAMPLES = 6
PTB_AND_WT2 = {"ptb": "ptb-mos", "wikitext-2": "wt2-mos"}
"""Preset of each column of tables 8 and 9."""


def by_components(results: SavedResults) -> pd.DataFrame:
    """Return the numbers of table 7, measured ranks with their intervals; see `TableEntry`."""
    data = ENTRIES["mos-table-7"].compute(results)
    softmaxes = data["row"].str.extract(r"(?:^|K = )(\d+)", expand=False).astype(int)
    size = data["row"].str.extract(r"(, d = \d+)", expand=False).fillna("")
    data = data.assign(K=softmaxes, series="MoS" + size + ", " + data["kind"])
    of_three = data[data["K"] == 3].set_index(["series", "column"])["value"]
    share = [
        100 * value / of_three.get((series, column), math.nan) if column == "perplexity" else value
        for series, column, value in data[["series", "column", "value"]].itertuples(index=False)
    ]
    return data.assign(drawn=share)


@figure("mos-table-7-plot", data=by_components, lacks=unmeasured, panel="column",
        panel_title=lambda column, rows: "", layout={"share_y": False, "height": 0.75})  # fmt: skip
def table_7(ax: Axes, data: pd.DataFrame) -> None:
    """Rank of the log-probability matrix and test perplexity on Penn Treebank by number K of softmaxes in MoS (Yang
    et al. 2018, table 7): published (grey, hollow) and, where measured, this repository's, also of small models (blue,
    filled; thin bars from the lowest to the highest rank within the interval of tolerances).
    Perplexities are shares of that with K = 3.
    """
    column = data["column"].iloc[0]
    look = HEADS["mos"]
    for series, rows in data[data["value"].notna()].groupby("series", sort=False):
        name = str(series)
        is_measured = rows["kind"].iloc[0] == "measured"
        color = look.color if is_measured else PUBLISHED
        shown = replace(look, label=name, color=color, dashes=DASHES[2] if "d =" in name else look.dashes)
        style = shown.line(marker=look.marker, markerfacecolor=color if is_measured else "white")
        ax.plot(rows["K"], rows["drawn"].astype(float), **style)
        if is_measured and column == "rank":
            ax.vlines(rows["K"], rows["low"].astype(float), rows["high"].astype(float), color=color, linewidth=0.8)
    ax.set_xticks(sorted(data["K"].unique()))
    ax.set(xlabel="number $K$ of softmaxes", ylabel=LABELS[column])
    if column == "rank":
        ax.axhline(FULL_RANK, color="0.5", linewidth=0.8, linestyle=":")
        ax.text(data["K"].max(), 1.015 * FULL_RANK, "full rank", ha="right", va="bottom", color="0.4", fontsize="small")
        ax.set_ylim(0, 1.09 * FULL_RANK)
        ax.yaxis.set_major_formatter("{x:,.0f}")


def _settings(number: str, presets: Mapping[str, str], here: Callable[[str, str], Any]) -> Iterator[dict[str, Any]]:
    """Yield the published settings and those used here, which ``here`` returns by row and column."""
    (published,) = tables("mos", number)
    for row in published.rows:
        for column, value in zip(published.columns, row.values, strict=True):
            heading, setting = CORPORA.get(column, column), here(row.name, column)
            text = f"{setting:g}" if isinstance(setting, float) else str(setting)
            yield cell(row.name, heading, "published", value, source=published.source)
            yield cell(row.name, heading, "here", text, source=presets[column])


def _of_preset(preset: str, row: str) -> Any:
    """Return a preset's setting, or the default of its backbone; empty if its model has none of that name."""
    config = PRESETS[preset].config.model_dump(mode="json")
    settings = dict(config["model"]["backbone"])
    backbone = asdict(backbones.find(settings.pop("name")).Config(**settings))
    if "layers" in backbone:
        backbone["hidden_sizes"] = [backbone["hidden_size"]] * backbone["layers"]
    section, name = DATA["settings"][row].split(".")
    training = config["training"]
    sections = {"training": training, "optimizer": training["optimizer"], "head": config["model"]["head"]}
    return (sections | {"backbone": backbone})[section].get(name, "")


@table("mos-table-8", first="setting")
def table_8(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Settings of MoS on Penn Treebank (PTB) and WikiText-2 (WT2; Yang et al. 2018, table 8), and those of the presets
    ptb-mos and wt2-mos, which are those of the authors' published code. In the two rows of embedding and hidden-state
    dropout the printed table has PTB's values under WT2, and WT2's under PTB.
    """
    return _settings("8", PTB_AND_WT2, lambda row, column: _of_preset(PTB_AND_WT2[column], row))


@table("mos-table-9", first="setting")
def table_9(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Settings of the dynamic evaluation of MoS (Yang et al. 2018, table 9), and those of 'bottleneck eval --dynamic':
    learning_rate is η there, and decay λ. The batch size is that of the gradient statistics.
    """
    statistics = {"batch_size": BATCH_SIZE}
    return _settings(
        "9", PTB_AND_WT2, lambda row, corpus: {**statistics, **asdict(published_dynamic("mos", corpus))}[row]
    )


@table("mos-table-10", first="setting")
def table_10(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Settings of Softmax and MoS on the 1B Word data set (Yang et al. 2018, table 10), and those of the presets
    1b-softmax and 1b-mos7.
    """
    presets = {"Softmax": "1b-softmax", "MoS-7": "1b-mos7"}
    return _settings("10", presets, lambda row, column: _of_preset(presets[column], row))


COMPARE = "bottleneck compare MOS MOC --json FILE"


@table("mos-table-14", first="case",
       lacks=lambda data: [] if data["row"].str.endswith("measured").any() else [COMPARE])  # fmt: skip
def table_14(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Next tokens that MoS predicts better than MoC, with the five likeliest tokens of both: published, on Penn
    Treebank (Yang et al. 2018, table 14), and measured by 'bottleneck compare', largest margins first.
    """
    (published,) = tables("mos", "14")
    cases = [(f"{row.name}, published", row.values, published.source) for row in published.rows]
    for content in (saved.content for saved in results.of("comparison")):
        names = [str(source["path"]) for source in content["sources"]]
        heads = [head_of(name) for name in names]
        if set(heads) == {"mos", "moc"}:
            order = (heads.index("mos"), heads.index("moc"))
            better = content["second_better" if order[0] else "first_better"][:EXAMPLES]
            cases += [
                (f"{number}, measured", _example(example, order), " and ".join(names))
                for number, example in enumerate(better, 1)
            ]
    for name, texts, source in cases:
        for column, text in zip(published.columns, texts, strict=True):
            yield cell(name, column, "", text, source=source)


def _example(example: Mapping[str, Any], order: Sequence[int]) -> tuple[str, ...]:
    """Return the end of a context, its next token, and the likeliest tokens of the two models."""
    tops = (", ".join(f"{one['token']} {one['probability']:.2f}" for one in example["top"][place]) for place in order)
    return ("…" + example["context"][-CONTEXT:], example["target"], *tops)
