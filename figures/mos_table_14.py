"""Yang et al. 2018, table 14: contexts where MoS gives the next token a higher probability than MoC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import pandas as pd

from softmax_bottleneck.plotting import head_of
from softmax_bottleneck.published import tables

from .base import Table
from .published_table import COLUMNS, cell
from .results import Results

CONTEXT = 60
"""Characters of the context that are shown."""
EXAMPLES = 6


@final
class MoSTable14(Table):
    """Next tokens that MoS predicts better than MoC, with the five likeliest tokens of both: published, on Penn
    Treebank (Yang et al. 2018, table 14), and measured by 'bottleneck compare', largest margins first.
    """

    first = "case"
    needs = "bottleneck compare MOS MOC --json FILE"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return one row a cell: context, next token and both models' likeliest tokens; see `Table`."""
        (published,) = tables("mos", "14")
        cells = [
            cell(f"{row.name}, published", column, "", value, source=published.source)
            for row in published.rows
            for column, value in zip(published.columns, row.values, strict=True)
        ]
        comparisons = [saved.content for saved in results.of("comparison")]
        cells += [one for content in comparisons for one in _measured(content, published.columns)]
        return pd.DataFrame(cells, columns=COLUMNS)

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return the comparison where there is none."""
        return [] if data["row"].str.endswith("measured").any() else [self.needs]


def _measured(content: Mapping[str, Any], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    names = [str(source["path"]) for source in content["sources"]]
    if [head_of(name) for name in names] not in (["mos", "moc"], ["moc", "mos"]):
        return
    order = (0, 1) if head_of(names[0]) == "mos" else (1, 0)
    examples = content["first_better" if order[0] == 0 else "second_better"]
    for number, example in enumerate(examples[:EXAMPLES], 1):
        tops = [
            ", ".join(f"{one['token']} {one['probability']:.2f}" for one in example["top"][place]) for place in order
        ]
        texts = ["…" + example["context"][-CONTEXT:], example["target"], *tops]
        for column, text in zip(columns, texts, strict=True):
            yield cell(f"{number}, measured", column, "", text, source=" and ".join(names))
