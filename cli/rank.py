"""``bottleneck rank``."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import (
    Memory,
    check_outputs,
    device_option,
    emit,
    example,
    json_option,
    kind_option,
    progress,
    text_options,
)

INDETERMINATE = 3


@click.command("rank", epilog=example("bottleneck rank demo/runs/softmax"))
@click.argument("source")
@text_options
@click.option(
    "--method",
    type=click.Choice(["auto", "dense", "gram", "tsqr", "sketch", "factored"]),
    default="auto",
    show_default=True,
    help="auto takes thin factors where the head has them, else what fits.",
)
@click.option("--rule", type=click.Choice(["press", "numpy", "gap"]), default="press", show_default=True)
@click.option(
    "--eps",
    metavar="float64|float32|bfloat16|float16|NUMBER",
    help="Roundoff of the numbers.  [default: as recorded, or what the numbers show]",
)
@kind_option
@click.option(
    "--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True, help="Of the model."
)
@click.option("--max-memory", type=Memory(), default="8GiB", show_default=True, help="For the decomposition.")
@click.option("--width", type=click.IntRange(min=1), default=1024, show_default=True, help="Of a sketch.")
@device_option
@click.option("--save-spectrum", type=click.Path(path_type=Path), metavar="FILE.npz", help="Keep the spectrum.")
@json_option
@click.option("--strict", is_flag=True, help="Exit with 3 when the rank is indeterminate.")
def command(
    source: str,
    data: str | None,
    split: str,
    contexts: int | None,
    method: str,
    rule: str,
    eps: str | None,
    kind: str,
    dtype: str,
    max_memory: int,
    width: int,
    device: str,
    save_spectrum: Path | None,
    json_to: str | None,
    strict: bool,
) -> None:
    """Measure the numerical rank of a log-probability matrix, raw and row-centred.

    SOURCE is a run folder, a .zarr store, a .npy or a .safetensors file.
    """
    from softmax_bottleneck import spectrum
    from softmax_bottleneck.logprobs import rank
    from softmax_bottleneck.progress import SILENT
    from softmax_bottleneck.training.fit import resolve_device

    check_outputs(json_to, save_spectrum)
    with spectrum.launched() as processes:
        report = rank(
            source,
            data=data,
            split=split,
            contexts=contexts,
            kind=kind,
            method=method,
            rule=rule,
            eps=eps,
            dtype=dtype,
            max_memory=max_memory,
            width=width,
            device=resolve_device(device),
            progress=progress() if processes.first else SILENT,
            processes=processes,
        )
    if not processes.first:
        return
    if save_spectrum is not None:
        spectrum.save_spectrum(save_spectrum, report.spectrum, report.source)
    emit(report.to_dict(), str(report), json_to)
    if strict and not (report.rank.determinate and report.rank_centered.determinate):
        raise SystemExit(INDETERMINATE)
