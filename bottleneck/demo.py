"""The papers' claim on a laptop: train each output layer, measure its rank, print one table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ConfigurationError
from .figures import mos_figure_1
from .files import make_folder, write_json
from .logprobs import kld, open_source, rank
from .progress import SILENT, Progress
from .spectrum import RankEstimate, RankReport
from .training import PRESETS, FitResult, Preset, fit


@dataclass(frozen=True)
class Row:
    """One trained and measured output layer."""

    name: str
    run: FitResult
    report: RankReport
    kld: float
    """Expected pairwise KL divergence on the test split, nats."""

    def to_dict(self) -> dict[str, Any]:
        """Return the rank report with what training and the divergence add to it."""
        return {
            "name": self.name,
            "parameters": self.run.parameters,
            "test_perplexity": self.run.test.perplexity,
            "train_seconds": self.run.seconds,
            "kld": self.kld,
            "report": self.report.to_dict(),
        }


def run(out: Path, *, family: str = "demo", device: str = "cpu", progress: Progress = SILENT) -> str:
    """Train and measure every preset of a family; return the table as text.

    Writes ``runs/NAME``, ``reports/NAME.json``, and ``cdf.png``, ``cdf.pdf``, ``cdf.csv`` under ``out``. Finished
    runs are kept, so an interrupted demo continues and a finished one is only measured again.

    Args:
        out: a folder, made when it is not there.
        family: what the presets' names begin with.
        device: where models train and are evaluated.
        progress: where to report.
    """
    presets = [preset for preset in PRESETS.values() if preset.family == family]
    if not presets:
        families = ", ".join(dict.fromkeys(preset.family for preset in PRESETS.values()))
        raise ConfigurationError(f"there is no family of presets {family!r}; known families are {families}")
    make_folder(out / "reports")
    rows = [_measure(out, preset, device, progress) for preset in presets]
    for row in rows:
        write_json(out / "reports" / f"{row.name}.json", row.to_dict())
    mos_figure_1.save({row.name: row.report.spectrum for row in rows}, out / "cdf.png", out / "cdf.pdf")
    return table(rows)


def _measure(out: Path, preset: Preset, device: str, progress: Progress) -> Row:
    progress.line(f"{preset.name}: {preset.summary}")
    done = fit(preset.config, out / "runs" / preset.head, device=device, progress=progress)
    source = open_source(done.path, device=device)
    report = rank(source, progress=progress)
    return Row(preset.head, done, report, kld(source, progress=progress).kld)


def _with_interval(rank: RankEstimate) -> str:
    """A determinate rank is one number; the others say what tolerances ten times either way would give."""
    return f"{rank.value:,}" if rank.determinate else f"{rank.value:,} ({rank.low:,} to {rank.high:,})"


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    measures = ["d", "bound", "rank", "row-centred rank", "pairwise KL"]
    head = ["model", "parameters", "test perplexity", *measures, "seconds"]
    lines = [
        [
            row.name,
            f"{row.run.parameters:,}",
            f"{row.run.test.perplexity:.2f}",
            str(row.report.embedding_size),
            "none" if row.report.bound["raw"] is None else f"{row.report.bound['raw']}, {row.report.bound['centered']}",
            _with_interval(row.report.rank),
            _with_interval(row.report.rank_centered),
            f"{row.kld:.3f}",
            f"{row.run.seconds:.0f}",
        ]
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    rule = [f"{'-' * (width - 1)}:" if column else "-" * width for column, width in enumerate(widths)]
    return "\n".join(
        "| "
        + " | ".join(
            text.rjust(width) if column else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in [head, rule, *lines]
    )
