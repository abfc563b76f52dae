"""Published and measured numbers side by side: the papers' tables (published.toml), and tables of presets."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import chain
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from softmax_bottleneck.corpora import catalogue
from softmax_bottleneck.results.plotting import HEADS, head_of
from softmax_bottleneck.results.published import DIGITS, PublishedTable, Row, expectation, grouped, number, tables
from softmax_bottleneck.results.tables import mean_text, rank_text
from softmax_bottleneck.training import PRESETS

from . import base
from .base import COLUMNS, ENTRIES, cell, figure, mean_and_spread, table, table_of
from .demo_table import cells
from .results import SavedResults

DATA = tomllib.loads(files(__package__).joinpath("published.toml").read_text(encoding="utf-8"))
PUBLISHED: dict[str, dict[str, Any]] = DATA["tables"]
"""Paper, number, caption and fields of each table."""
CORPORA = {"ptb": "PTB", "wikitext-2": "WT2"}
TIMES = {("MoS-15", "PTB/bs"): "mos, batch 20", ("MoS-15", "PTB/best-1"): "mos"}
"""Row and column of table 13 of Yang et al. 2018 → case of ``bottleneck bench training``."""
TRIGGERS = {"": "NT-ASGD", "et-asgd": "ET-ASGD"}
"""Ways to start averaging, by the end of a family's name."""
LEFT = ("sigsoftmax", "mos")
"""Heads whose label is left of their point, because another point is near."""
PANELS = {"ptb": "Penn Treebank", "wt2": "WikiText-2"}


def _compute(paper: str, number: str, small: Sequence[str], results: SavedResults) -> pd.DataFrame:
    """Return the published numbers and the measured ones; see `base.TableEntry`."""
    parts = [part for each in number.split(" and ") for part in tables(paper, each)]
    cells = [one for part in parts for one in _part(results, part, small, several=len(parts) > 1)]
    return pd.DataFrame(cells, columns=COLUMNS).astype({"seeds": "Int64"})


def unmeasured(data: pd.DataFrame) -> list[str]:
    """Return the published models without a measurement."""
    measured = data[data["kind"] == "measured"]
    absent = measured[(measured["text"] == "") & (measured["source"] != "")]["source"]
    measured_keys = set(measured[measured["text"] != ""]["source"])
    keys = [key for key in dict.fromkeys(absent) if key not in measured_keys]
    return [f"nothing measured of {', '.join(keys)}"] if keys else []


def _part(
    results: SavedResults, part: PublishedTable, small: Sequence[str], *, several: bool
) -> Iterator[dict[str, Any]]:
    end = f", {CORPORA[part.corpus]}" if several else ""
    matrix = part.metric in ("rank", "pairwise KL")
    sizes = results.frame[results.frame["metric"] == "embedding_size"].drop_duplicates(["family", "model"])
    models = [*sizes[sizes["kind"].isin(("demo", "perplexity", "dialog"))].itertuples()]
    own = [_small(family, each, contexts=matrix) for family in small for each in models if each.family == family]
    for row in (*part.rows, *own):
        for column, value in zip(part.columns, row.values or [""] * len(part.columns), strict=True):
            heading = f"{column}{end}"
            text = grouped(value) if column == "rank" or part.metric == "rank" else value
            yield cell(row.name, heading, "published", text, value=number(value), source=part.source)
            if row.result and column != "parameters":
                yield _measured(results, part, row, column, heading)
            elif column != "parameters":
                yield cell(row.name, heading, "measured", "", source="")


def _measured(results: SavedResults, part: PublishedTable, row: Row, column: str, heading: str) -> dict[str, Any]:
    metric, split = part.measured_in(column)
    contexts = part.rank_contexts if metric == "rank" else None
    found = results.numbers(row.result, metric, split=split, how=row.how, contexts=contexts)
    more = {"low": found["low"].min(), "high": found["high"].max()} if metric == "rank" and len(found) else {}
    more |= mean_and_spread([*found["value"]])
    text = number_text(found, metric) if len(found) else ""
    return cell(row.name, heading, "measured", text, source=row.result, seeds=len(found), **more)


def number_text(rows: pd.DataFrame, metric: str) -> str:
    """Return one number of a model, with what its seeds say of it."""
    form = DIGITS.get(metric.partition("-")[0], ".2f")
    return rank_text(rows.to_dict("records")) if metric == "rank" else mean_text([*rows["value"]], form)


def _small(family: str, model: Any, *, contexts: bool) -> Row:
    """Return the row of a small model, of which there is the row of its embedding size in `SavedResults.frame`."""
    look = HEADS.get(head_of(model.model) or model.head or "")
    label = look.label if look else model.model
    if softmaxes := re.fullmatch(r"k(\d+)", model.model):
        label += f", K = {softmaxes[1]}"
    rows = f", T = {model.contexts:,.0f}" if contexts else ""
    return Row(f"{label}, d = {model.value:.0f}{rows} ({family})", (), f"{family}/{model.model}")


def _training_times(results: SavedResults) -> pd.DataFrame:
    """Return the published ratios of table 13 and those of the benchmark of training steps."""
    data = _compute("mos", "13", (), results)
    cases = [*chain.from_iterable(saved.content["cases"].items() for saved in results.of("bench"))]
    seconds = {name: case["epoch_seconds"] for name, case in cases if "epoch_seconds" in case}
    for (row, column), name in TIMES.items():
        if seconds.keys() >= {name, "softmax"}:
            ratio = seconds[name] / seconds["softmax"]
            place = (data["row"] == row) & (data["column"] == column) & (data["kind"] == "measured")
            data.loc[place, ["text", "value", "source"]] = [f"{ratio:.1f}", ratio, "bench/training"]
    return data


for _name, _settings in PUBLISHED.items():
    _numbers = partial(_compute, _settings["paper"], _settings["number"], _settings.get("small", ()))
    _fields = {key: value for key, value in _settings.items() if key not in ("paper", "number", "small")}
    ENTRIES[_name] = base.TableEntry(compute=_numbers, lacks=unmeasured, **_fields)
ENTRIES["mos-table-13"] = replace(
    ENTRIES["mos-table-13"],
    compute=_training_times,
    lacks=lambda data: [] if "bench/training" in set(data["source"]) else [PUBLISHED["mos-table-13"]["needs"]],
)


def rank_and_perplexity(results: SavedResults) -> pd.DataFrame:
    """Return ``panel`` (the corpus), ``trigger``, ``head``, ``rank`` and ``perplexity``."""
    data = results.frame[results.frame["source"].str.startswith("Parthiban et al. 2021")]
    data = data.pivot_table(index=["family", "model"], columns="metric", values="value", sort=False).reset_index()
    family, how = (data["family"].str.partition("-")[part] for part in (0, 2))
    data = data.assign(panel=family.map(PANELS), trigger=how.map(TRIGGERS), head=data["model"])
    return data.dropna(subset=["rank", "perplexity"])[["panel", "trigger", "head", "rank", "perplexity"]]


@figure("parthiban-figure", data=rank_and_perplexity, panel="panel", layout={"share_y": False, "height": 0.8},
        heading=lambda data: "all points are published numbers")  # fmt: skip
def parthiban(ax: Axes, data: pd.DataFrame) -> None:
    """Test perplexity against the rank of the log-probability matrix, published: hollow under NT-ASGD, filled under
    ET-ASGD, a grey line from one to the other; heads without a published rank are left out (Parthiban et al.
    2021). Rank alone does not order perplexities.
    """
    for head, rows in data.groupby("head", sort=False):
        look = HEADS[str(head)]
        ax.plot(rows["rank"], rows["perplexity"], color="0.7", zorder=1)
        for trigger, rank, perplexity in rows[["trigger", "rank", "perplexity"]].itertuples(index=False):
            face = look.color if trigger == "ET-ASGD" else "white"
            ax.plot(rank, perplexity, look.marker, color=look.color, markerfacecolor=face, zorder=3)
        first = rows.iloc[0]
        place, left = (first["rank"], first["perplexity"]), head in LEFT
        text: dict[str, Any] = {
            "xytext": (-6 if left else 6, 0),
            "textcoords": "offset points",
            "ha": "right" if left else "left",
        }
        ax.annotate(look.label, place, va="center", color=look.color, fontsize="small", **text)
    for trigger, face in (("NT-ASGD", "white"), ("ET-ASGD", "0.3")):
        ax.plot([], [], "o", color="0.3", markerfacecolor=face, label=trigger)
    ax.set(xscale="log", xlabel="rank", ylabel="test perplexity")
    ax.margins(0.14)


FAMILIES: dict[str, str] = DATA["families"]
"""Families with a table of their reports, and the caption of each."""
PUBLISHED_FAMILIES = ("ptb", "wt2", "text8", "1b", "switchboard")
NGRAMS = {row.result: row.result.rpartition("/")[2] + ":ptb" for row in tables("mikolov", "4.1")[0].rows}
"""SOURCE of each n-gram model, by the place of its measurement."""


def family_cells(family: str, results: SavedResults) -> Iterator[dict[str, Any]]:
    """Yield perplexities, ranks and divergences of the reports of one family; see `demo_table.cells`."""
    numbers = results.frame[(results.frame["family"] == family) & (results.frame["kind"] == "demo")]
    if len(numbers):
        (_, *header), rows = cells(numbers)
        for name, *texts in rows:
            for column, text in zip(header, texts, strict=True):
                yield cell(name, column, "", text, source=f"{family}/{name}")


for _family, _title in FAMILIES.items():
    ENTRIES[_family] = table_of(
        partial(family_cells, _family), title=_title, needs=f"bottleneck demo --family {_family}"
    )


def _unmeasured(data: pd.DataFrame) -> list[str]:
    absent = data[(data["column"] == "measured") & (data["text"] == "")]["row"]
    return [f"nothing measured of {', '.join(absent)}"] if len(absent) else []


@table("presets", first="preset", lacks=_unmeasured)
def presets(results: SavedResults) -> Iterator[dict[str, Any]]:
    """Presets of the papers' models, and n-gram models as SOURCES: perplexities unless said otherwise, published and
    measured with this code.
    """
    sizes = {info.name: info.vocabulary_size for info in catalogue()}
    for name, preset in PRESETS.items():
        if preset.family in PUBLISHED_FAMILIES:
            count = preset.parameters(sizes.get(preset.config.corpus))
            yield from _row(results, name, f"{preset.family}/{preset.model}", count)
    for key, source in NGRAMS.items():
        yield from _row(results, source, key, None)


def _row(results: SavedResults, name: str, key: str, parameters: int | None) -> Iterator[dict[str, Any]]:
    size = "" if parameters is None else f"{parameters / 1e6:.2f}M"
    yield cell(name, "parameters", "", size, value=parameters)
    yield cell(name, "published", "", expectation(key))
    asked = [("valid ", "perplexity", "valid"), ("test ", "perplexity", "test"), ("rank ", "rank", "test")]
    asked.append(("pairwise KL ", "pairwise KL", "test"))
    found = [(word, metric, results.numbers(key, metric, split=split)) for word, metric, split in asked]
    texts = [f"{word}{number_text(rows, metric)}" for word, metric, rows in found if len(rows)]
    yield cell(name, "measured", "", ", ".join(texts), source=key)
