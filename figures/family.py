"""The small models that this repository trained, one table for each family of presets."""

from __future__ import annotations

from typing import final

import pandas as pd

from softmax_bottleneck.demo_table import cells

from .base import Table
from .published_table import COLUMNS, cell
from .results import Results


@final
class Family(Table):
    """The reports of one family of presets.

    Args:
        family: name of the family.
        about: what its models are.
    """

    def __init__(self, family: str, about: str) -> None:
        self.family, self.about, self.needs = family, about, f"bottleneck demo --family {family}"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return perplexities, ranks and divergences; see `demo_table.cells`."""
        reports = results.reports(self.family)
        if not reports:
            return pd.DataFrame(columns=COLUMNS)
        (_, *header), rows = cells(reports)
        return pd.DataFrame(
            [
                cell(name, column, "", text, source=f"{self.family}/{name}")
                for name, *texts in rows
                for column, text in zip(header, texts, strict=True)
            ],
            columns=COLUMNS,
        )


FAMILIES = {
    table.family: table
    for table in (
        Family(
            "demo", "Four LSTMs on the text of Python's own documentation, trained and measured by 'bottleneck demo'."
        ),
        Family(
            "ptb-fast",
            "AWD-LSTMs of the papers' sizes on Penn Treebank, after few epochs, by 'bottleneck demo --family "
            "ptb-fast'.",
        ),
        Family("ptb-small", "Small LSTMs on Penn Treebank, by 'bottleneck demo --family ptb-small'."),
        Family(
            "ptb-small-mos",
            "Small AWD-LSTMs with MoS of K softmaxes on Penn Treebank, by 'bottleneck demo --family ptb-small-mos'.",
        ),
        Family(
            "ptb-small-nt-asgd",
            "Small AWD-LSTMs on Penn Treebank, AdamW and then NT-ASGD, by 'bottleneck demo --family "
            "ptb-small-nt-asgd': mean and standard deviation of three seeds.",
        ),
        Family(
            "wt2-fast",
            "AWD-LSTMs of the papers' sizes on WikiText-2, after few epochs, by 'bottleneck demo --family wt2-fast'.",
        ),
    )
}
