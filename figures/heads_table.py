"""The demo's table, one row an output layer: what MoS tables 1, 6 and 11 and LMS table 1 compare, on small models."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads import REGISTRY

Report = Mapping[str, Any]


def table(reports: Sequence[Report]) -> str:
    """Return reports as a Markdown table, those of one model together.

    Of several seeds, perplexities and divergences are shown as mean ± standard deviation, and ranks from the least to
    the largest; of one, a rank that is not determinate with those of tolerances ten times larger and smaller. Adaptive
    scores are of the seeds that have them.

    Args:
        reports: what ``bottleneck demo`` writes under ``reports/``.
    """
    by_name: dict[str, list[Report]] = {}
    for report in reports:
        by_name.setdefault(report["name"], []).append(report)
    adaptive = any("adaptive" in report for report in reports)
    lines = [_head(adaptive=adaptive), *(_line(name, some, adaptive=adaptive) for name, some in by_name.items())]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, [f"{'-' * (width - 1)}:" if column else "-" * width for column, width in enumerate(widths)])
    return "\n".join(
        "| "
        + " | ".join(
            text.rjust(width) if column else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in lines
    )


def _head(*, adaptive: bool) -> list[str]:
    scores = ["test perplexity", *(["dynamic", "with cache"] if adaptive else [])]
    return ["model", "parameters", *scores, "d", "bound", "rank", "row-centred rank", "pairwise KL", "seconds"]


def _line(name: str, reports: Sequence[Report], *, adaptive: bool) -> list[str]:
    first = reports[0]
    bound = first["report"]["bound"]
    adapted = [one["adaptive"] for one in reports if "adaptive" in one]
    return [
        name,
        f"{first['parameters']:,}",
        _mean([one["test_perplexity"] for one in reports], ".2f"),
        *(_mean([one[how] for one in adapted], ".2f") for how in ("dynamic", "cache") if adaptive),
        str(first["report"]["embedding_size"]),
        "none" if bound["raw"] is None else f"{bound['raw']}, {bound['centered']}",
        _rank([one["report"]["rank"] for one in reports]),
        _rank([one["report"]["rank_centered"] for one in reports]),
        _mean([one["kld"] for one in reports], ".3f"),
        f"{statistics.mean(one['train_seconds'] for one in reports):.0f}",
    ]


def _mean(values: Sequence[float], form: str) -> str:
    if not values:
        return "–"
    spread = f" ± {format(statistics.stdev(values), form)}" if len(values) > 1 else ""
    return format(statistics.mean(values), form) + spread


def _rank(ranks: Sequence[Report]) -> str:
    if len(ranks) == 1 and not ranks[0]["determinate"]:
        return "{value:,} ({low:,} to {high:,})".format(**ranks[0])
    values = sorted(rank["value"] for rank in ranks)
    return f"{values[0]:,}" if values[0] == values[-1] else f"{values[0]:,} to {values[-1]:,}"


def read(folder: Path) -> list[Report]:
    """Return the reports in a folder, in the order of the heads' registry and of their seeds."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    if not reports:
        raise ConfigurationError(f"{folder} holds no reports; 'bottleneck demo --out DIR' writes them to DIR/reports")
    order = [*REGISTRY]
    return sorted(reports, key=lambda report: (order.index(report["name"]), report.get("seed", 0)))


if __name__ == "__main__":
    sys.stdout.write(table(read(Path(sys.argv[1]))) + "\n")
