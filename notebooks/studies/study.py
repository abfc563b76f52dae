"""What the studies of many runs share: each run is one JSON file, and the same command makes those that are missing."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from softmax_bottleneck.core.files import make_folder, write_json
from softmax_bottleneck.core.machine import machine
from softmax_bottleneck.core.version import __version__
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.measure import RankReport


def main(study: Callable[..., int], description: str, arguments: Sequence[str] | None = None) -> None:
    """Run a study with the options of its command, and say how many runs it still lacks."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of all results")
    parser.add_argument("--data", default="wikitext-2", metavar="CORPUS", help="corpus or .txt file with the text")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="N", help="begin no run after N minutes")
    options = parser.parse_args(arguments)
    try:
        missing = study(**vars(options))
    except BottleneckError as error:
        sys.exit(f"Error: {error}")
    print(f"{options.out}: {f'{missing} runs are missing' if missing else 'done'}")


def run_missing(
    out: Path,
    runs: Iterable[Any],
    work: Callable[[Any], dict[str, Any]],
    *,
    kind: str,
    shown: str,
    minutes: float = math.inf,
) -> int:
    """Write the results of the runs that have none yet, one JSON file a run, and return how many still lack one.

    Args:
        out: folder of the results.
        runs: all runs of the study, in their order: dataclasses with a ``name``, that of the file.
        work: returns the results of a run, ready for JSON.
        kind: what the files say that they are.
        shown: the result that is reported after a run.
        minutes: time after which no run is begun.
    """
    about = {"machine": machine(), "version": __version__}
    make_folder(out)
    end = time.monotonic() + 60 * minutes
    missing = [run for run in runs if not (out / f"{run.name}.json").exists()]
    for number, run in enumerate(missing):
        if time.monotonic() >= end:
            return len(missing) - number
        values = work(run)
        write_json(out / f"{run.name}.json", {"kind": kind, **asdict(run), **values, **about})
        print(f"{run.name}: {shown.replace('_', ' ')} {values[shown]:.4f}", file=sys.stderr)
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
