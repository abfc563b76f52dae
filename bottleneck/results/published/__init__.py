"""Published numbers: one data file for each paper, with table, row and column of each number, as printed.

Presets, evaluation, figures and the README read published numbers from here. To add a paper: write its ``NAME.toml``
and enter NAME in ``PAPERS``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

PAPERS = ("parthiban", "mos", "lms", "mikolov", "krause", "merity")
"""Names of the papers, in the order in which a model's numbers are listed."""
SPLITS = ("train", "valid", "test")
DIGITS = {"perplexity": ".2f", "pairwise KL": ".3f", "bits per character": ".2f", "parameters": ",.0f", "BLEU": ".3f"}
"""Metrics that have a published and a measured number, beside ranks, with the form of the measured one."""
ET_ASGD = "ET-ASGD"
HOW = {
    "": "",
    "finetuned": "finetuned ",
    "cache": "with a cache ",
    "dynamic": "with dynamic evaluation ",
    ET_ASGD: "with ET-ASGD (--set training.averaging.start=epoch) ",
}
"""Words for evaluation or training that differs from the preset's own."""


@dataclass(frozen=True)
class Row:
    """One line of a published table."""

    name: str
    values: tuple[str, ...]
    """Values as printed, one for each column; empty where the paper has none."""
    result: str = ""
    """Place of a measurement of the same model in a folder of results: ``FAMILY/NAME`` for the preset FAMILY-NAME."""
    how: str = ""
    """A key of ``HOW``."""
    note: str = ""
    """Difference between the published model and the preset's."""


@dataclass(frozen=True)
class PublishedTable:
    """A published table, or its part for one corpus."""

    paper: str
    """Authors and year, such as "Yang et al. 2018"."""
    number: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    corpus: str = ""
    metric: str = ""
    """Metric of the columns that are named after a split."""
    split: str = ""
    """Split of the columns that are named after a metric."""
    where: str = ""
    """``"supplement"`` for a table in the supplement."""
    rank_contexts: int | None = None
    """Number of rows of the matrices whose ranks are printed; ``None`` for all."""

    @property
    def source(self) -> str:
        """Return the source of the numbers: "Yang et al. 2018, table 1"."""
        numbered = f"table {self.number}" if self.number[0].isdigit() else self.number
        return f"{self.paper}, {f'{self.where}, ' if self.where else ''}{numbered}"

    def measured_in(self, column: str) -> tuple[str, str]:
        """Return the metric and the split of a column."""
        return (self.metric, column) if column in SPLITS else (column, self.split)

    def cell(self, row: str, column: str) -> str:
        """Return a value as printed, empty if there is none."""
        (values,) = (each.values for each in self.rows if each.name == row)
        return values[self.columns.index(column)]

    def numbers(self, column: str) -> dict[str, float]:
        """Return the values of one column as numbers, by row."""
        return {row.name: float(self.cell(row.name, column)) for row in self.rows}


@cache
def tables(paper: str, number: str | None = None) -> tuple[PublishedTable, ...]:
    """Return the tables of one of ``PAPERS``, or the parts of the one with a number, as printed.

    Example:
        >>> tables("mos", "7")[0].cell("15", "rank")
        '9981'
    """
    content = tomllib.loads(files(__package__).joinpath(f"{paper}.toml").read_text(encoding="utf-8"))
    every = []
    for table in content["table"]:
        how = table.pop("how", "")
        rows = tuple(Row(**{"how": how, **row, "values": tuple(row["values"])}) for row in table.pop("rows"))
        every.append(PublishedTable(paper=content["paper"], rows=rows, **{**table, "columns": tuple(table["columns"])}))
    return tuple(table for table in every if number in (None, table.number))


def measurements() -> Iterator[dict[str, Any]]:
    """Yield every published number of a preset's model as plain values, by the same names as measured ones.

    The family of models that were trained in another way, or that adapt to the text, ends in that way.
    """
    for table in (table for paper in PAPERS for table in tables(paper)):
        for row in (row for row in table.rows if row.result):
            family, _, model = row.result.rpartition("/")
            about = {"kind": "published", "model": model, "source": table.source}
            about["family"] = f"{family}-{row.how.lower()}" if row.how else family
            for column, text in zip(table.columns, row.values, strict=True):
                metric, split = table.measured_in(column)
                if (value := number(text)) is not None:
                    yield {**about, "split": split, "metric": metric, "value": value}


def number(text: str) -> float | None:
    """Return a printed value as a number, with M for millions; ``None`` where nothing or words are printed."""
    match = re.match(r"~?(\d+(?:\.\d+)?)(M?)", text)
    return float(match[1]) * (1e6 if match[2] else 1) if match else None


def rows_of(result: str) -> Iterator[tuple[PublishedTable, Row]]:
    """Yield every published row of a model, starting with those of the preset's own training."""
    pairs = [(table, row) for paper in PAPERS for table in tables(paper) for row in table.rows if row.result == result]
    yield from sorted(pairs, key=lambda pair: [*HOW].index(pair[1].how))


def expectation(result: str) -> str:
    """Return all published numbers of a model, with their sources, in one sentence.

    Args:
        result: ``FAMILY/NAME`` for the preset FAMILY-NAME.

    Example:
        >>> expectation("text8/mos7")
        'valid 1.40, test 1.49 bits per character (Yang et al. 2018, table 12)'
    """
    said: dict[str, list[PublishedTable]] = {}
    for table, row in rows_of(result):
        text = _numbers(table, row)
        if text:
            said.setdefault(f"{HOW[row.how]}{text}{f', {row.note}' if row.note else ''}", []).append(table)
    # Some papers print a number twice, rounded and not rounded.
    return "; ".join(f"{text} ({_sources(sources)})" for text, sources in said.items()) or "no published number"


def _numbers(table: PublishedTable, row: Row) -> str:
    values = {column: value for column, value in zip(table.columns, row.values, strict=True) if value}
    if table.metric:
        of_splits = ", ".join(f"{split} {grouped(values[split])}" for split in SPLITS[1:] if split in values)
        before, after = (f"{table.metric} ", "") if table.metric in ("rank", "pairwise KL") else ("", table.metric)
        return f"{before}{of_splits}{f' {after}' if after not in ('', 'perplexity') else ''}" if of_splits else ""
    contexts = f" of {table.rank_contexts:,} contexts" if table.rank_contexts else ""
    named = {"perplexity": f"{table.split} ", "rank": "rank "}
    return ", ".join(
        f"{word}{grouped(values[column])}{contexts if column == 'rank' else ''}"
        for column, word in named.items()
        if column in values
    )


def grouped(value: str) -> str:
    """Return a whole number with commas: 9981 ± 2 becomes 9,981 ± 2."""
    first, *others = value.split(" ")
    return " ".join([f"{int(first):,}" if first.isdigit() else first, *others])


def _sources(tables: list[PublishedTable]) -> str:
    """Return the sources of numbers: "Yang et al. 2018, tables 1 and 5; Ganea et al. 2019, table 1"."""
    places: dict[str, list[str]] = {}
    for table in tables:
        places.setdefault(table.paper, []).append(table.source.removeprefix(f"{table.paper}, "))
    return "; ".join(f"{paper}, {_joined(list(dict.fromkeys(where)))}" for paper, where in places.items())


def _joined(places: list[str]) -> str:
    numbers = [place.removeprefix("table ") for place in places]
    return f"tables {' and '.join(numbers)}" if len(places) > 1 else places[0]
