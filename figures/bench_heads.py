"""A training step of the output layers, this package's beside the plain formulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import pandas as pd

from softmax_bottleneck.plotting import HEADS

from .base import Table
from .published_table import COLUMNS, cell
from .results import Results

SHOWN = (
    "mos K=15", "mos K=10", "softmax", "sigsoftmax", "gss", "lms-plif", "moc", "mos-plif", "softmax M=100,000",
    "mos M=100,000",
)  # fmt: skip
"""The cases in the README."""


@final
class BenchHeads(Table):
    """Seconds and memory of a training step of the output layers, forward and backward in float32, beside the plain
    formulation, and the share of the rate that the matrix products have alone (bottleneck bench heads).
    """

    needs = "bottleneck bench heads --json FILE"
    first = "training step"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return seconds, MiB, those of the plain formulation, and the share; see `Table`."""
        cells = []
        for saved in results.of("bench"):
            cases = saved.content["cases"]
            for name in (name for name in SHOWN if "share" in cases.get(name, {})):
                ours, plain = cases[name], cases.get(f"{name} plain")
                label = _label(ours["case"])
                share = 100 * ours["share"]
                cells += [
                    *pair(label, "ours", ours),
                    *pair(label, "plain", plain),
                    cell(label, "of the products' speed", "", f"{share:.0f} %", value=share, source=str(saved.key)),
                ]
        return pd.DataFrame(cells, columns=COLUMNS)


def pair(label: str, whose: str, case: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return seconds and memory of one case as two cells; dashes for none."""
    if case is None:
        return [cell(label, f"{what}, {whose}", "", "–") for what in ("seconds", "MiB")]
    seconds, mebibytes = case["seconds"], case["memory_bytes"] / 2**20
    return [
        cell(label, f"seconds, {whose}", "", f"{seconds:#.3g}".rstrip("."), value=seconds, source="measured"),
        cell(label, f"MiB, {whose}", "", f"{mebibytes:,.0f}", value=mebibytes, source="measured"),
    ]


def _label(case: Mapping[str, Any]) -> str:
    components = f", K = {case['components']}" if case["components"] > 1 else ""
    name = HEADS[case["head"]].label
    return f"{name}{components}, N = {case['contexts']:,}, d = {case['size']}, M = {case['vocab']:,}"
