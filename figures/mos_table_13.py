"""Yang et al. 2018, table 13: training time over Softmax's."""

from __future__ import annotations

from typing import final

import pandas as pd

from .published_table import PublishedTable
from .results import Results

MEASURED = {("MoS-15", "PTB/bs"): "mos, batch 20", ("MoS-15", "PTB/best-1"): "mos"}
"""Row and column → case of ``bottleneck bench training``."""


@final
class MoSTable13(PublishedTable):
    """Training time, measured by the benchmark of training steps."""

    def compute(self, results: Results) -> pd.DataFrame:
        """Return the published ratios and those of the benchmark of training steps."""
        data = super().compute(results)
        cases = {name: case for saved in results.of("bench") for name, case in saved.content["cases"].items()}
        for (row, column), name in MEASURED.items():
            if "epoch_seconds" in cases.get(name, {}):
                ratio = cases[name]["epoch_seconds"] / cases["softmax"]["epoch_seconds"]
                place = (data["row"] == row) & (data["column"] == column) & (data["kind"] == "measured")
                data.loc[place, ["text", "value", "source"]] = [f"{ratio:.1f}", ratio, "bench/training"]
        return data

    def missing(self, data: pd.DataFrame) -> list[str]:
        """Return the benchmark where it is absent."""
        return [] if "bench/training" in set(data["source"]) else [self.needs]


MOS_TABLE_13 = MoSTable13(
    "mos",
    "13",
    "Training time divided by Softmax's (Yang et al. 2018, table 13); bs: equal batch sizes on one GPU; best-1 and "
    "best-3: each model's best settings on one and three GPUs. Measured on a CPU: ptb-mos and ptb-softmax.",
    kinds_as_rows=True,
    needs="bottleneck bench training --json FILE",
)
