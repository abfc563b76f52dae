"""The demo's table, one row for each output layer, from its saved reports."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softmax_bottleneck.core.json_file import read_json
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads import REGISTRY
from softmax_bottleneck.results.base import by_numbers
from softmax_bottleneck.results.tables import mean_text, rank_text, terminal

from .schemas import DemoReport

Report = Mapping[str, Any]
REMEDY = "name a folder of the demo's reports"


def read(folder: Path) -> list[Report]:
    """Return the reports in a folder, sorted by head (in the registry's order), name and seed.

    Raises:
        ConfigurationError: for a folder without reports, or with other JSON files.
    """
    # NAME.valid.json is another measurement of NAME.
    reports = [read_report(path) for path in sorted(folder.glob("*.json")) if "." not in path.stem]
    if not reports:
        raise ConfigurationError(f"{folder} holds no reports; 'bottleneck demo --out DIR' writes them to DIR/reports")
    heads = [*REGISTRY]
    return sorted(
        reports,
        key=lambda one: (heads.index(one["report"]["source"]["head"]), by_numbers(one["name"]), one.get("seed", 0)),
    )


def read_report(path: Path) -> Report:
    """Return one report; `ConfigurationError` for another JSON file."""
    report: Report = read_json(path, DemoReport, error=ConfigurationError, remedy=REMEDY, finite=True)
    head = report["report"]["source"].get("head")
    if head not in REGISTRY:
        raise ConfigurationError(f"{path} is the report of an unknown head, {head!r}; {REMEDY}")
    return report


def table(reports: Sequence[Report]) -> str:
    """Return reports as a table of at most 80 columns; see `cells`."""
    return terminal(*cells(reports))


def cells(reports: Sequence[Report]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of reports, one row for each model.

    For several seeds, perplexities and divergences are means ± standard deviations, and ranks are those of `rank_text`.
    Adaptive scores are means over the seeds that have them.

    Args:
        reports: reports from the folder ``reports/`` of a demo.
    """
    by_name: dict[str, list[Report]] = {}
    for report in reports:
        by_name.setdefault(report["name"], []).append(report)
    rows = [_row(each) for each in by_name.values()]
    if not any("adaptive" in report for report in reports):
        rows = [{name: text for name, text in row.items() if name not in ("dynamic", "with cache")} for row in rows]
    return [*rows[0]], [[*row.values()] for row in rows]


def _row(reports: Sequence[Report]) -> dict[str, str]:
    first = reports[0]
    bound = first["report"]["bound"]
    adaptive = [one["adaptive"] for one in reports if "adaptive" in one]
    return {
        "model": first["name"],
        "parameters": f"{first['parameters']:,}",
        "test perplexity": mean_text([one["test_perplexity"] for one in reports], ".2f"),
        "dynamic": mean_text([one["dynamic"] for one in adaptive], ".2f"),
        "with cache": mean_text([one["cache"] for one in adaptive], ".2f"),
        "d": str(first["report"]["embedding_size"]),
        "bound (row-centred)": "none" if bound["raw"] is None else f"{bound['raw']} ({bound['centered']})",
        "rank": rank_text([one["report"]["rank"] for one in reports]),
        "row-centred rank": rank_text([one["report"]["rank_centered"] for one in reports]),
        "pairwise KL": mean_text([one["kld"] for one in reports], ".3f"),
        "seconds": f"{statistics.mean(one['train_seconds'] for one in reports):.0f}",
    }
