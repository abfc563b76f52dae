"""One small transformer with several output layers, as a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, final

import pandas as pd

from softmax_bottleneck.demo_table import interval_text, mean_text

from .base import Table
from .published_table import COLUMNS, cell
from .results import Results

LABELS = {
    "softmax": "Softmax",
    "softmax-untied": "Softmax, untied",
    "mos-2": "MoS, K = 2",
    "mos-2-low-rank": "MoS, K = 2, low rank",
    "mos-4": "MoS, K = 4",
    "sigsoftmax": "Sigsoftmax",
    "lms-plif": "LMS-PLIF",
}
"""The heads of the study in their order; all but one share the embeddings with the input."""
STEPS, TIME = "parameters", "time"
"""Training for equal steps, and for equal processor time."""
NEEDS = "bottleneck bench transformer-study --out DIR"


def panel_of(vocab: int, size: int) -> str:
    """Return the name of one vocabulary and width."""
    return f"M = {vocab:,}, d = {size}"


def runs(results: Results) -> pd.DataFrame:
    """Return the runs of the study, one a row: the values of its files, and ``panel``; empty without results."""
    contents = [saved.content for saved in results.of("transformer")]
    data = pd.DataFrame([content for content in contents if content["head"] in LABELS])
    if not len(data):
        return data
    data["order"] = data["head"].map([*LABELS].index)
    data["panel"] = [panel_of(vocab, size) for vocab, size in data[["vocab", "size"]].itertuples(index=False)]
    return data.sort_values(["vocab", "size", "order", "regime", "seed"], ignore_index=True)


@final
class TransformerStudy(Table):
    """Transformers of six layers and of width d, with M byte-pair tokens, on WikiText-2: bits per byte of the first
    50,000 bytes of the test text after equal steps, and after the processor time of the tied Softmax with the steps
    that it allows; numerical rank, 10⁻³-effective rank and the share of the gradient that the output layer passes on,
    all after equal steps; processor seconds a step. Means ± standard deviations of the seeds. Models of one M and d
    have equal numbers of parameters, unless their row says otherwise.
    """

    needs = NEEDS
    first = "output layer"

    def compute(self, results: Results) -> pd.DataFrame:
        """Return one row for each number; see `Table`."""
        data = runs(results)
        cells: list[dict[str, Any]] = []
        for (panel, head), rows in data.groupby(["panel", "head"], sort=False) if len(data) else ():
            equal, timed = (rows[rows["regime"] == regime] for regime in (STEPS, TIME))
            mark = "" if equal["equal_parameters"].all() else " (more parameters)"
            cells += _cells(f"{panel}: {LABELS[str(head)]}{mark}", equal, timed)
        return pd.DataFrame(cells, columns=COLUMNS)


def _cells(row: str, equal: pd.DataFrame, timed: pd.DataFrame) -> list[dict[str, Any]]:
    def mean(column: str, rows: pd.DataFrame, key: str, form: str) -> dict[str, Any]:
        return _cell(row, column, list(rows[key]), lambda values: mean_text(values, form))

    effective = [values["1e-3"] for values in equal["effective_rank"]]
    return [
        mean("bits per byte", equal, "bits_per_byte", ".3f"),
        mean("bits per byte, equal time", timed, "bits_per_byte", ".3f"),
        mean("steps, equal time", timed, "steps", ".0f"),
        _cell(row, "rank", [end for ends in equal["rank_interval"] for end in ends], _range),
        _cell(row, "10⁻³-effective rank", effective, _range),
        mean("gradient kept", equal, "gradient_kept", ".3f"),
        mean("seconds a step", equal, "seconds_a_step", ".3f"),
    ]


def _cell(row: str, column: str, values: Sequence[float], text: Callable[[Sequence[float]], str]) -> dict[str, Any]:
    if not values:
        return cell(row, column, "", "")
    spread = statistics.stdev(values) if len(values) > 1 else None
    return cell(row, column, "", text(values), value=statistics.mean(values), spread=spread, source="measured")


def _range(values: Sequence[float]) -> str:
    return interval_text(min(values), max(values))
