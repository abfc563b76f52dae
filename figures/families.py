"""The models that this repository trained, one table for each family of presets, and presets of published models."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd

from softmax_bottleneck.bench.demo_table import cells, mean_text, rank_text
from softmax_bottleneck.corpora import catalogue
from softmax_bottleneck.results.published import expectation, tables
from softmax_bottleneck.training import PRESETS

from .base import ENTRIES, cell, table, table_of
from .published_tables import DATA
from .results import Results

FAMILIES: dict[str, str] = DATA["families"]
"""Families with a table of their reports, and the caption of each."""
PUBLISHED_FAMILIES = ("ptb", "wt2", "text8", "1b", "switchboard")
NGRAMS = {row.result: row.result.rpartition("/")[2] + ":ptb" for row in tables("mikolov", "4.1")[0].rows}
"""SOURCE of each n-gram model, by the place of its measurement."""


def family_cells(family: str, results: Results) -> Iterator[dict[str, Any]]:
    """Yield perplexities, ranks and divergences of the reports of one family; see `demo_table.cells`."""
    if reports := results.reports(family):
        (_, *header), rows = cells(reports)
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
def presets(results: Results) -> Iterator[dict[str, Any]]:
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


def _row(results: Results, name: str, key: str, parameters: int | None) -> Iterator[dict[str, Any]]:
    size = "" if parameters is None else f"{parameters / 1e6:.2f}M"
    yield cell(name, "parameters", "", size, value=parameters)
    yield cell(name, "published", "", expectation(key))
    texts = [
        f"{split} {mean_text(values, '.2f')}"
        for split in ("valid", "test")
        if (values := results.numbers(key, "perplexity", split=split))
    ]
    texts += [f"rank {rank_text(ranks)}"] if (ranks := results.ranks(key)) else []
    texts += [f"pairwise KL {mean_text(values, '.3f')}"] if (values := results.numbers(key, "pairwise KL")) else []
    yield cell(name, "measured", "", ", ".join(texts), source=key)
