"""The page's tables: models beside each other, published beside measured numbers, provenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..measure.divergences import Estimate
from ..measure.statistic_texts import table_cells
from ..results.published import DIGITS, PAPERS, PublishedTable, Row, grouped, rows_of, tables
from ..results.tables import Table, rank_text
from .contents import Contents, Model

MOST_COLUMNS = 5
"""Largest number of models that stand beside each other: their table fits a sheet of paper."""
LEAST = 0.1
"""Smallest number with the decimals of a published one; smaller ones have four digits."""


def comparison_table(contents: Contents) -> Table:
    """Return one row a model, or one column for few models; what no model has a number for is left out."""
    lines = [_line(label, model) for label, model in zip(contents.labels, contents.models, strict=True)]
    names = dict.fromkeys(name for line in lines for name in line)
    header = [name for name in names if any(line.get(name) for line in lines)]
    return _turned(header, [[line.get(name) or "–" for name in header] for line in lines])


def distance_table(contents: Contents) -> Table:
    """Return one row for each model that was compared with a reference, or one column for few models."""
    lines = []
    for each in contents.comparisons:
        if statistics := each.get("statistics"):
            reference, model = map(contents.label_of, each["sources"])
            numbers = table_cells({name: Estimate(**values) for name, values in statistics.items()})
            ranks = each["difference"]
            numbers["rank of difference"] = "–" if ranks is None else _rank(ranks["rank"])
            lines.append({"model Q": model, "reference P": reference, **numbers})
    header = list(dict.fromkeys(name for line in lines for name in line))
    return _turned(header, [[line.get(name, "–") for name in header] for line in lines])


def _turned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of models with one row a model, or one column for few models."""
    if len(rows) > MOST_COLUMNS or not rows:
        return Table(header, rows)
    (_, *labels), *quantities = zip(header, *rows, strict=True)
    return Table(["", *labels], quantities)


def _line(label: str, model: Model) -> dict[str, str]:
    report, entropy = model.report, model.report.entropy_rank
    T, M = model.shape
    bounds = [value for value in (report.bound["raw"], report.bound["centered"]) if value is not None]
    effective = ["unknown" if value is None else f"{value:,}" for value in report.effective_rank.values()]
    return {
        "model": label,
        "d": "" if report.embedding_size is None else f"{report.embedding_size:,}",
        "bounds": ", ".join(f"{value:,}" for value in bounds) or "none",
        "rank": _rank(report.rank.to_dict()),
        "row-centred rank": _rank(report.rank_centered.to_dict()),
        "test perplexity": _number(model, "test perplexity"),
        "valid perplexity": "" if "test perplexity" in model.numbers else _number(model, "valid perplexity"),
        "pairwise KL, nats": _number(model, f"{model.split} pairwise KL"),
        "parameters": _number(model, "parameters"),
        "contexts × tokens": f"{T:,} × {M:,}",
        f"effective ranks, ε = {', '.join(report.effective_rank)}": ", ".join(effective),
        "entropy, stable rank": f"{'unknown' if entropy is None else f'{entropy:,.1f}'}, {report.stable_rank:,.2f}",
    }


def _rank(rank: Mapping[str, Any]) -> str:
    """Return a rank as JSON has it."""
    return f"≥ {rank['value']:,}" if rank["at_least"] else rank_text([rank])


def _number(model: Model, name: str) -> str:
    value = model.numbers.get(name)
    metric = next(metric for metric in DIGITS if name.endswith(metric))
    return "" if value is None else format(value, DIGITS[metric] if value >= LEAST else ".4g")


def published_table(contents: Contents) -> Table:
    """Return every published number of the models, or of the papers' models of the same head and corpus."""
    header = ["model", "quantity", "published", "of", "source", "measured"]
    return Table(
        header, [row for pair in zip(contents.labels, contents.models, strict=True) for row in _published(*pair)]
    )


def _published(label: str, model: Model) -> Iterator[list[str]]:
    published = list(rows_of(model.key)) if model.key else []
    for table, row in published or _alike(model):
        for column, value in zip(table.columns, row.values, strict=True):
            metric, split = table.measured_in(column)
            if value and (metric in DIGITS or metric == "rank"):
                quantity = " ".join(part for part in (split if metric != "parameters" else "", metric) if part)
                measured = _measured(model, metric, split, table) if published and not row.how else ""
                text = grouped(value) if metric == "rank" else value
                what = ", ".join(part for part in (row.name, row.how, row.note) if part)
                yield [label, quantity, text, what, table.source, measured or "–"]


def _alike(model: Model) -> Iterator[tuple[PublishedTable, Row]]:
    """Yield the papers' own models with this output layer on this corpus."""
    for table in (table for paper in PAPERS for table in tables(paper)):
        for row in table.rows if table.corpus and table.corpus == model.source.get("corpus") else ():
            if row.result.rpartition("/")[2] == model.source.get("head") and not row.how:
                yield table, row


def _measured(model: Model, metric: str, split: str, table: PublishedTable) -> str:
    if metric != "rank":
        return _number(model, "parameters" if metric == "parameters" else f"{split} {metric}")
    same = split == model.split and table.rank_contexts in (None, model.shape[0])
    return _rank(model.report.rank.to_dict()) if same else ""


def provenance(model: Model) -> list[tuple[str, str]]:
    """Return where a model's numbers come from and what certifies them, as label and text."""
    source = ", ".join(f"{key} {value}" for key, value in model.source.items() if value not in (None, ""))
    return [
        ("source", source),
        ("read from", model.origin),
        *(row for row in model.report.rows(details=True) if row[0] != "next"),  # which is saved in words of Python
    ]
