"""A whole training step of the papers' models, by this package and by plain torch."""

from __future__ import annotations

from typing import final

import pandas as pd

from .base import Table
from .bench_heads import pair
from .published_table import COLUMNS
from .results import Results


@final
class BenchTraining(Table):
    """Seconds and memory of a whole training step of the papers' models in float32, beside one of plain torch
    (bottleneck bench training).
    """

    needs = "bottleneck bench training --json FILE"
    first = "training step"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return seconds and MiB, ours and of plain torch; see `Table`."""
        cells = []
        for saved in results.of("bench"):
            cases = saved.content["cases"]
            for name, case in cases.items():
                if "epoch_seconds" in case and not case["case"]["plain"]:
                    label = f"{case['case']['preset']}, {case['case']['batch_size']} columns of 70 tokens"
                    cells += [*pair(label, "ours", case), *pair(label, "plain torch", cases.get(f"{name} plain"))]
        return pd.DataFrame(cells, columns=COLUMNS)
