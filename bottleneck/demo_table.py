"""The demo's table, one row an output layer, from the reports it keeps."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import ConfigurationError
from .heads import REGISTRY
from .plotting import markdown

Report = Mapping[str, Any]


def read(folder: Path) -> list[Report]:
    """Return the reports in a folder, in the order of the heads' registry, of their names and of their seeds.

    Raises:
        ConfigurationError: there are none, or other files among them.
    """
    reports = []
    for path in sorted(folder.glob("*.json")):
        if "." in path.stem:  # NAME.valid.json: another measurement of NAME
            continue
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            order = [*REGISTRY].index(report["report"]["source"]["head"]), report["name"], report.get("seed", 0)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} is no report of 'bottleneck demo'; name a folder of such") from error
        reports.append((order, report))
    if not reports:
        raise ConfigurationError(f"{folder} holds no reports; 'bottleneck demo --out DIR' writes them to DIR/reports")
    return [report for _, report in sorted(reports, key=lambda one: one[0])]


def table(reports: Sequence[Report]) -> str:
    """Return reports as a Markdown table; see `cells`."""
    return markdown(*cells(reports))


def cells(reports: Sequence[Report]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of reports, those of one model together.

    Of several seeds, perplexities and divergences are shown as mean ± standard deviation, and ranks from the least to
    the largest. Where one of them is not determinate, the interval of tolerances ten times larger and smaller comes
    first, and the ranks at the tolerance itself in parentheses. Adaptive scores are of the seeds that have them.

    Args:
        reports: what ``bottleneck demo`` writes under ``reports/``.
    """
    by_name: dict[str, list[Report]] = {}
    for report in reports:
        by_name.setdefault(report["name"], []).append(report)
    adaptive = any("adaptive" in report for report in reports)
    scores = ["test perplexity", *(["dynamic", "with cache"] if adaptive else [])]
    head = ["model", "parameters", *scores, "d", "bound", "rank", "row-centred rank", "pairwise KL", "seconds"]
    return head, [_line(name, some, adaptive=adaptive) for name, some in by_name.items()]


def _line(name: str, reports: Sequence[Report], *, adaptive: bool) -> list[str]:
    first = reports[0]
    bound = first["report"]["bound"]
    adapted = [one["adaptive"] for one in reports if "adaptive" in one]
    return [
        name,
        f"{first['parameters']:,}",
        mean_text([one["test_perplexity"] for one in reports], ".2f"),
        *(mean_text([one[how] for one in adapted], ".2f") for how in ("dynamic", "cache") if adaptive),
        str(first["report"]["embedding_size"]),
        "none" if bound["raw"] is None else f"{bound['raw']}, {bound['centered']}",
        rank_text([one["report"]["rank"] for one in reports]),
        rank_text([one["report"]["rank_centered"] for one in reports]),
        mean_text([one["kld"] for one in reports], ".3f"),
        f"{statistics.mean(one['train_seconds'] for one in reports):.0f}",
    ]


def mean_text(values: Sequence[float], form: str) -> str:
    """Return the mean, with the sample standard deviation where there are several values; a dash for none."""
    if not values:
        return "–"
    spread = f" ± {format(statistics.stdev(values), form)}" if len(values) > 1 else ""
    return format(statistics.mean(values), form) + spread


def rank_text(ranks: Sequence[Report]) -> str:
    """Return the ranks of several seeds, from the least to the largest; see `cells` for what is not determinate."""
    values = [rank["value"] for rank in ranks]
    text = _interval(min(values), max(values))
    if all(rank["determinate"] for rank in ranks):
        return text
    return f"{_interval(min(rank['low'] for rank in ranks), max(rank['high'] for rank in ranks))} ({text})"


def _interval(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
