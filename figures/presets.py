"""Published and measured numbers of the presets of published models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import pandas as pd

from softmax_bottleneck.corpora import catalogue
from softmax_bottleneck.demo_table import mean_text, rank_text
from softmax_bottleneck.published import expectation, tables
from softmax_bottleneck.training import PRESETS

from .base import Table
from .published_table import COLUMNS, cell
from .results import Results

FAMILIES = ("ptb", "wt2", "text8", "1b", "switchboard")
NGRAMS = {row.result: row.result.rpartition("/")[2] + ":ptb" for row in tables("mikolov", "4.1")[0].rows}
"""SOURCE of each n-gram model, by the place of its measurement."""


@final
class Presets(Table):
    """Presets of the papers' models, and n-gram models as SOURCES: perplexities unless said otherwise, published and
    measured with this code.
    """

    needs = "a measurement of a preset of the papers"
    first = "preset"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return parameters, all published numbers and all measured ones of each; see `Table`."""
        sizes = {info.name: info.vocabulary_size for info in catalogue()}
        cells: list[dict[str, object]] = []
        for name, preset in PRESETS.items():
            if preset.family in FAMILIES:
                count = preset.parameters(sizes.get(preset.config.corpus))
                cells += _row(results, name, f"{preset.family}/{preset.model}", count)
        for key, source in NGRAMS.items():
            cells += _row(results, source, key, None)
        return pd.DataFrame(cells, columns=COLUMNS)

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return the presets without a measurement."""
        absent = data[(data["column"] == "measured") & (data["text"] == "")]["row"]
        return [f"nothing measured of {', '.join(absent)}"] if len(absent) else []


def _row(results: Results, name: str, key: str, parameters: int | None) -> Iterator[dict[str, object]]:
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
