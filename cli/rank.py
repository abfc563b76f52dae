"""``bottleneck rank``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from .options import Counts, Memory, Method, Written, example, json_option, progress, show
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.parallel import Processes
    from softmax_bottleneck.sources import Source

INDETERMINATE = 3


@click.command("rank", epilog=example("bottleneck rank demo/runs/softmax"))
@with_source(parallel=True)
@click.option(
    "--method",
    type=Method(),
    default="auto",
    show_default=True,
    help="Method that computes the singular values: factored, gram, tsqr, dense or sketch. auto takes the first that "
    "suits the matrix and fits in memory.",
)
@click.option(
    "--rule",
    type=click.Choice(["press", "numpy", "gap"]),
    default="press",
    show_default=True,
    help="Rule that decides which singular values count: those above the tolerance of Press et al. or of NumPy, or "
    "those before the largest gap.",
)
@click.option(
    "--eps",
    metavar="float64|float32|bfloat16|float16|NUMBER",
    help="Relative roundoff of the matrix entries.  [default: recorded with the source, or inferred from the entries]",
)
@click.option(
    "--inf",
    type=click.Choice(["refuse", "drop-columns"]),
    default="refuse",
    show_default=True,
    help="What to do when tokens have probability 0: refuse the matrix, or leave out their columns.",
)
@click.option(
    "--max-memory",
    type=Memory(),
    help="Memory limit of the decomposition, such as 8GiB.  [default: 8GiB, or the GPU's free memory]",
)
@click.option(
    "--width",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="Number of dimensions of the sketch, for the method sketch.",
)
@click.option(
    "--extended",
    type=Counts(),
    metavar="HISTORIES,FUTURES",
    help="Measure instead the extended logit matrix of this many histories and futures, drawn from the text.",
)
@click.option("--estimate-hidden-size", is_flag=True, help="Estimate the hidden size from the row-centred spectrum.")
@click.option("--dry-run", is_flag=True, help="Only estimate time and memory, and say which method would run.")
@click.option("--save-spectrum", type=Written(), metavar="FILE.npz", help="Write the singular values to FILE.npz.")
@json_option
@click.option("--strict", is_flag=True, help="Exit with status 3 when a rank is indeterminate.")
def command(
    source: Source,
    processes: Processes,
    extended: tuple[int, int] | None,
    dry_run: bool,
    save_spectrum: Path | None,
    json_to: Path | None,
    strict: bool,
    **settings: Any,
) -> None:
    """Measure the numerical rank of a log-probability matrix, raw and row-centred.

    SOURCE is a run folder, a Hugging Face causal language model (its folder or its name on the hub), a .zarr store or
    array (a path or a URL), a .npy or a .safetensors file.
    """
    from softmax_bottleneck.measure import estimate_cost, rank
    from softmax_bottleneck.measure.extended import power_law_finding
    from softmax_bottleneck.progress import SILENT
    from softmax_bottleneck.sources import extended_logits
    from softmax_bottleneck.spectrum import save_spectrum as save

    if extended is not None:
        source = extended_logits(source, *extended)
    if dry_run:
        asked = ("method", "eps", "max_memory", "width", "device")
        show(estimate_cost(source, **{name: settings[name] for name in asked}), json_to)
        return
    shown = progress() if processes.first else SILENT
    report = rank(source, processes=processes, progress=shown, **settings)
    if not processes.first:
        return
    if extended is not None:
        report = replace(report, findings=(*report.findings, power_law_finding(report.spectrum.values)))
    if save_spectrum is not None:
        save(save_spectrum, report.spectrum, report.source)
    show(report, json_to)
    if strict and not (report.rank.determinate and report.rank_centered.determinate):
        raise SystemExit(INDETERMINATE)
