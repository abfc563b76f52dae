"""``bottleneck rank``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from click.exceptions import Exit

from softmax_bottleneck.core.options import RANK

from .options import example, format_option, json_option, options_of, pair, progress
from .outputs import echo, show_all
from .paths import Output, holds_spectra, is_drawn
from .sources import given_options, measure_all, with_source

if TYPE_CHECKING:
    from softmax_bottleneck.core.parallel import Processes
    from softmax_bottleneck.results.base import Result
    from softmax_bottleneck.sources import Source

INDETERMINATE = 3


@click.command("rank", epilog=example("bottleneck rank demo/runs/softmax"))
@with_source(count=-1, parallel=True)
@options_of(RANK)
@click.option(
    "--extended",
    type=pair,
    metavar="HISTORIES,FUTURES",
    panel="What to measure",
    help="Measure instead the logits after this many histories, each followed by this many futures, all drawn from "
    "the text: the extended logit matrix of Golowich, Liu and Shetty 2026.",
)
@click.option(
    "--checkpoints",
    is_flag=True,
    panel="What to measure",
    help="Measure every checkpoint of a run, or of a Trainer's folder, and add what H, W, gradient and loss show.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    panel="How to compute",
    help="Only estimate time and memory, and say which method would run.",
)
@click.option(
    "--save-spectrum",
    type=Output("a saved spectrum", ".npz", is_own=holds_spectra),
    metavar="FILE.npz",
    panel="Output",
    help="Write the singular values to FILE.npz.",
)
@click.option(
    "--plot",
    "plot_to",
    type=Output("a figure", ".png", ".pdf", ".svg", is_own=is_drawn),
    metavar="FIGURE.(png|pdf|svg)",
    panel="Output",
    help="Draw the checkpoints' values against the step.",
)
@json_option
@format_option
@click.option("--details", is_flag=True, panel="Output", help="Print every number, with how it was found.")
@click.option("--strict", is_flag=True, panel="Output", help="Exit with status 3 when a rank is indeterminate.")
def command(
    sources: dict[str, Source],
    processes: Processes,
    save_spectrum: Path | None,
    plot_to: Path | None,
    json_to: Path | None,
    as_format: str | None,
    details: bool,
    strict: bool,
    **settings: Any,
) -> None:
    """Measure the numerical rank of a log-probability matrix, raw and row-centred.

    SOURCE is a run folder, an n-gram model (kn5:ptb), a Hugging Face causal language model (its folder or its name on
    the hub), a .gguf file, a .zarr store or array (a path or a URL), or a matrix file (.npy, .safetensors, .npz, .pt,
    .csv, .mat, .parquet, .h5). A lower bound is proved from a .kld file of llama.cpp and from top-k log-probabilities
    (.jsonl, .parquet). Several sources, or all runs in a folder, are measured into one table, in which LABEL=SOURCE
    gives a source another name.
    """
    from softmax_bottleneck.measure import RankReport, RankReports
    from softmax_bottleneck.spectrum import write_spectra

    if settings["dry_run"] and (strict or save_spectrum is not None or plot_to is not None):
        raise click.UsageError("--dry-run measures nothing, so --save-spectrum, --plot and --strict do not go with it")
    if plot_to is not None and not settings["checkpoints"]:
        raise click.UsageError("--plot draws --checkpoints; 'bottleneck spectrum' draws singular values")

    def show(results: Sequence[Result]) -> None:
        if processes.first:
            show_all(results, as_format or ("details" if details else None), json_to)

    models = [each.description["path"] for each in sources.values() if each.description["kind"] == "hugging-face"]
    results = measure_all(sources, lambda source: _measured(source, processes, **settings), show)
    reports = [result for result in results if isinstance(result, RankReport)]
    if not processes.first:
        return
    if models and not settings["dry_run"] and settings["extended"] is None:
        keep = shlex.join(["bottleneck", "dump", models[0], *given_options(), "--states", "--out", "FOLDER"])
        progress().line(f"{keep} keeps the hidden states: commands that take FOLDER do not run the model again")
    if save_spectrum is not None and reports:
        write_spectra(save_spectrum, [report.saved_spectrum for report in reports])
    if plot_to is not None and reports:
        RankReports(reports).plot(plot_to)
    open_ranks = [f"{which} of {report.name}" for report in reports for which in report.indeterminate]
    if strict and open_ranks:
        echo(f"indeterminate: {'; '.join(open_ranks)}", err=True)
        raise Exit(INDETERMINATE)


def _measured(
    source: Source,
    processes: Processes,
    *,
    checkpoints: bool,
    extended: tuple[int, int] | None,
    dry_run: bool,
    **settings: Any,
) -> Result:
    """Return the report of one source, or its cost for ``--dry-run``."""
    from softmax_bottleneck.measure import estimate_cost, rank
    from softmax_bottleneck.measure.extended import power_law_quantity
    from softmax_bottleneck.sources import extended_logits

    if extended is not None:
        source = extended_logits(source, *extended)
    if dry_run:
        return estimate_cost(source, **settings)
    report = rank(source, processes=processes, progress=progress(), checkpoint=checkpoints, **settings)
    if extended is not None:
        report = replace(report, more=(*report.more, power_law_quantity(report.spectrum.values, report.rank.low)))
    return report
