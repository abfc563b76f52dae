"""Tables of the papers, with this repository's measurements of the same models beside the published numbers."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from softmax_bottleneck.demo_table import mean_text, rank_text
from softmax_bottleneck.plotting import HEADS, head_of
from softmax_bottleneck.published import SPLITS, Row, grouped, tables
from softmax_bottleneck.published import Table as Published

from .base import Table
from .results import Results

DIGITS = {"perplexity": ".2f", "pairwise KL": ".3f", "bits per character": ".2f", "BLEU": ".3f"}
CORPORA = {"ptb": "PTB", "wikitext-2": "WT2"}
COLUMNS = ["row", "column", "kind", "text", "value", "spread", "low", "high", "seeds", "source"]


def cell(row: str, column: str, kind: str, text: str, **more: Any) -> dict[str, Any]:
    """Return one number of a table as a row of its data."""
    return {"row": row, "column": column, "kind": kind, "text": text, **more}


@dataclass(frozen=True)
class PublishedTable(Table):
    """A table of a paper, with measurements beside the published numbers."""

    paper: str
    """Name of the paper's file in `published`."""
    number: str
    """Number of the table; two numbers are joined by " and "."""
    about: str
    small: tuple[str, ...] = ()
    """Families of small models that have rows below the published ones."""
    kinds_as_rows: bool = False
    first: str = "model"
    needs: str = (
        "no run of the papers' size is measured yet: bottleneck train --preset NAME, bottleneck rank, bottleneck eval"
    )

    def compute(self, results: Results) -> pd.DataFrame:
        """Return the published numbers and the measured ones; see `Table`."""
        parts = [part for number in self.number.split(" and ") for part in tables(self.paper, number)]
        cells = [one for part in parts for one in self._part(results, part, several=len(parts) > 1)]
        return pd.DataFrame(cells, columns=COLUMNS).astype({"seeds": "Int64"})

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return the published models without a measurement."""
        measured = data[data["kind"] == "measured"]
        absent = measured[(measured["text"] == "") & (measured["source"] != "")]["source"]
        measured_keys = set(measured[measured["text"] != ""]["source"])
        keys = [key for key in dict.fromkeys(absent) if key not in measured_keys]
        return [f"nothing measured of {', '.join(keys)}"] if keys else []

    def _part(self, results: Results, part: Published, *, several: bool) -> Iterator[dict[str, Any]]:
        end = f", {CORPORA[part.corpus]}" if several else ""
        matrix = part.metric in ("rank", "pairwise KL")
        small = [_small(family, model, contexts=matrix) for family in self.small for model in results.models(family)]
        for row in (*part.rows, *small):
            for column, value in zip(part.columns, row.values or [""] * len(part.columns), strict=True):
                heading = f"{column}{end}"
                text = grouped(value) if column == "rank" or part.metric == "rank" else value
                yield cell(row.name, heading, "published", text, value=_number(value), source=part.source)
                if row.result and column != "parameters":
                    yield self._measured(results, part, row, column, heading)
                elif column != "parameters":
                    yield cell(row.name, heading, "measured", "", source="")

    def _measured(self, results: Results, part: Published, row: Row, column: str, heading: str) -> dict[str, Any]:
        metric, split = (part.metric, column) if column in SPLITS else (column, part.split)
        if metric == "rank":
            ranks = results.ranks(row.result, split=split, how=row.how, contexts=part.rank_contexts)
            text = rank_text(ranks) if ranks else ""
            values = [float(rank["value"]) for rank in ranks]
            more = (
                {"low": min(rank["low"] for rank in ranks), "high": max(rank["high"] for rank in ranks)}
                if ranks
                else {}
            )
        else:
            values, more = results.numbers(row.result, metric, split=split, how=row.how), {}
            text = mean_text(values, DIGITS.get(metric.partition("-")[0], ".2f")) if values else ""
        return cell(row.name, heading, "measured", text, source=row.result, **summary(values), **more)


def summary(values: Sequence[float]) -> dict[str, float | int | None]:
    """Return mean, sample standard deviation and number of measurements."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"value": statistics.mean(values) if values else None, "spread": spread, "seeds": len(values)}


def _small(family: str, model: Mapping[str, Any], *, contexts: bool) -> Row:
    name = model["name"]
    look = HEADS.get(head_of(name) or model.get("source", {}).get("head", ""))
    label = look.label if look else name
    if softmaxes := re.fullmatch(r"k(\d+)", name):
        label += f", K = {softmaxes[1]}"
    rows = f", T = {model['contexts']:,}" if contexts else ""
    return Row(f"{label}, d = {model['embedding_size']}{rows} ({family})", (), f"{family}/{name}")


def _number(text: str) -> float | None:
    match = re.match(r"~?(\d+(?:\.\d+)?)(M?)", text)
    return float(match[1]) * (1e6 if match[2] else 1) if match else None
