"""Studies of many runs: each is one JSON file, and the same command makes those that are missing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..core.files import make_folder, write_json
from ..core.machine import machine
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..measure.report import RankReport


def run_missing(
    out: Path,
    runs: Iterable[Any],
    work: Callable[[Any], dict[str, Any]],
    *,
    shown: str,
    minutes: float = math.inf,
    progress: Progress = SILENT,
) -> int:
    """Write the results of the runs that have none yet, one JSON file a run, and return how many still lack one.

    Args:
        out: folder of the results.
        runs: all runs of the study, in their order: dataclasses with a ``name``, that of the file.
        work: returns the results of a run, ready for JSON.
        shown: the result that is reported after a run.
        minutes: time after which no run is begun.
        progress: where to report.
    """
    make_folder(out)
    end = time.monotonic() + 60 * minutes
    missing = [run for run in runs if not (out / f"{run.name}.json").exists()]
    for number, run in enumerate(missing):
        if time.monotonic() >= end:
            return len(missing) - number
        values = work(run)
        write_json(out / f"{run.name}.json", {**asdict(run), **values, "machine": machine(), "version": __version__})
        progress.line(f"{run.name}: {shown.replace('_', ' ')} {values[shown]:.4f}")
    return 0


def ranks(report: RankReport) -> dict[str, Any]:
    """Return the ranks of a report, ready for JSON."""
    return {
        "contexts": report.spectrum.shape[0],
        "rank": report.rank.value,
        "rank_interval": [report.rank.low, report.rank.high],
        "rank_centered": report.rank_centered.value,
        "effective_rank": report.to_dict()["effective_rank"],
    }
