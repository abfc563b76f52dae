"""The small models that this repository trained, one table for each family of presets."""

from __future__ import annotations

from typing import ClassVar, final

import pandas as pd

from softmax_bottleneck.demo_table import cells

from .base import Table
from .published_table import COLUMNS, cell
from .results import Results


class Family(Table):
    """The reports of one family of presets, which subclasses name."""

    family: ClassVar[str]
    first = "model"

    @property
    def needs(self) -> str:  # type: ignore[override]
        """Say which command writes its reports."""
        return f"bottleneck demo --family {self.family}"

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


@final
class DemoFamily(Family):
    """Four LSTMs on the text of Python's own documentation, trained and measured by 'bottleneck demo'."""

    family = "demo"


@final
class PTBFast(Family):
    """AWD-LSTMs of the papers' sizes on Penn Treebank, after few epochs, by 'bottleneck demo --family ptb-fast'."""

    family = "ptb-fast"


@final
class PTBSmall(Family):
    """Small LSTMs on Penn Treebank, by 'bottleneck demo --family ptb-small'."""

    family = "ptb-small"


@final
class PTBSmallMoS(Family):
    """Small AWD-LSTMs with MoS of K softmaxes on Penn Treebank, by 'bottleneck demo --family ptb-small-mos'."""

    family = "ptb-small-mos"


@final
class PTBSmallNTASGD(Family):
    """Small AWD-LSTMs on Penn Treebank, AdamW and then NT-ASGD, by 'bottleneck demo --family ptb-small-nt-asgd':
    mean and standard deviation of three seeds.
    """

    family = "ptb-small-nt-asgd"


@final
class WT2Fast(Family):
    """AWD-LSTMs of the papers' sizes on WikiText-2, after few epochs, by 'bottleneck demo --family wt2-fast'."""

    family = "wt2-fast"
