"""The demo's table, one row for each output layer, from the numbers in its saved reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.results.tables import mean_text, rank_text, terminal

MEANS = {
    "test perplexity": ("perplexity", ".2f"),
    "dynamic": ("adaptive.dynamic", ".2f"),
    "with cache": ("adaptive.cache", ".2f"),
    "pairwise KL": ("kld", ".3f"),
}
"""Metric and form of the numbers that are means over seeds, by column."""
ADAPTIVE = ("dynamic", "with cache")


def table(numbers: pd.DataFrame) -> str:
    """Return reports as a table of at most 80 columns; see `cells`."""
    return terminal(*cells(numbers))


def cells(numbers: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of reports, one row for each model.

    For several seeds, perplexities and divergences are means ± standard deviations, and ranks are those of `rank_text`.
    Adaptive scores are means over the seeds that have them.

    Args:
        numbers: rows of `SavedResults.frame`, of which those from reports of the demo count.

    Raises:
        ConfigurationError: there are none of the demo.
    """
    reports = numbers[(numbers["kind"] == "demo") & numbers["epoch"].isna()]
    if reports.empty:
        raise ConfigurationError("there are no reports; 'bottleneck demo --out DIR' writes them to DIR/reports")
    rows = [_row(str(model), each) for (_, model), each in reports.groupby(["family", "model"], sort=False)]
    if not reports["metric"].str.startswith("adaptive.").any():
        rows = [{name: text for name, text in row.items() if name not in ADAPTIVE} for row in rows]
    return [*rows[0]], [[*row.values()] for row in rows]


def _row(model: str, reports: pd.DataFrame) -> dict[str, str]:
    tested: Any = reports[reports["split"] != "valid"].groupby("metric")
    values: dict[str, Sequence[float]] = tested["value"].apply(list).to_dict()
    means = {name: mean_text(values.get(metric, ()), form) for name, (metric, form) in MEANS.items()}
    ranks = {metric: rank_text(each.to_dict("records")) for metric, each in tested if metric.startswith("rank")}

    def whole(metric: str) -> str:
        return f"{values[metric][0]:.0f}" if metric in values else "none"

    bounds = f"{whole('bound.raw')} ({whole('bound.centered')})"
    return {
        "model": model,
        "parameters": f"{values['parameters'][0]:,.0f}",
        **{name: means[name] for name in ("test perplexity", *ADAPTIVE)},
        "d": whole("embedding_size"),
        "bound (row-centred)": "none" if bounds.startswith("none") else bounds,
        "rank": ranks["rank"],
        "row-centred rank": ranks["rank_centered"],
        "pairwise KL": means["pairwise KL"],
        "seconds": f"{sum(values['train_seconds']) / len(values['train_seconds']):.0f}",
    }
