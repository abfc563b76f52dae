"""``bottleneck rank``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from .options import (
    Counts,
    Memory,
    Method,
    check_outputs,
    device_option,
    dtype_option,
    emit,
    example,
    hugging_face_options,
    json_option,
    kind_option,
    progress,
    text_options,
)

if TYPE_CHECKING:
    from softmax_bottleneck.logprobs import HuggingFaceOptions

INDETERMINATE = 3


@click.command("rank", epilog=example("bottleneck rank demo/runs/softmax"))
@click.argument("source")
@text_options
@click.option(
    "--method",
    type=Method(),
    default="auto",
    show_default=True,
    help="factored, gram, tsqr, dense or sketch; auto takes the first of them that suits the matrix and fits.",
)
@click.option("--rule", type=click.Choice(["press", "numpy", "gap"]), default="press", show_default=True)
@click.option(
    "--eps",
    metavar="float64|float32|bfloat16|float16|NUMBER",
    help="Roundoff of the numbers.  [default: as recorded, or what the numbers show]",
)
@kind_option
@click.option(
    "--inf",
    type=click.Choice(["refuse", "drop-columns"]),
    default="refuse",
    show_default=True,
    help="What to do with tokens of probability 0.",
)
@dtype_option
@click.option("--max-memory", type=Memory(), help="For the decomposition.  [default: 8GiB, or what the GPU has free]")
@click.option("--width", type=click.IntRange(min=1), default=1024, show_default=True, help="Of a sketch.")
@device_option
@hugging_face_options
@click.option("--estimate-hidden-size", is_flag=True, help="Look for the hidden size in the row-centred spectrum.")
@click.option(
    "--extended",
    type=Counts(),
    metavar="HISTORIES,FUTURES",
    help="Measure the extended logit matrix of so many histories and futures, drawn from the text, instead.",
)
@click.option("--dry-run", is_flag=True, help="Say what it would take, and with which method.")
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
    inf: str,
    dtype: str,
    max_memory: int | None,
    width: int,
    device: str,
    save_spectrum: Path | None,
    json_to: str | None,
    strict: bool,
    hugging_face: HuggingFaceOptions,
    estimate_hidden_size: bool,
    extended: tuple[int, int] | None,
    dry_run: bool,
) -> None:
    """Measure the numerical rank of a log-probability matrix, raw and row-centred.

    SOURCE is a run folder, a Hugging Face causal language model (its folder or its name on the hub), a .zarr store or
    array (a path or a URL), a .npy or a .safetensors file.
    """
    from softmax_bottleneck import spectrum
    from softmax_bottleneck.logprobs import HuggingFaceOptions, estimate_cost, extended_logits, open_source, rank
    from softmax_bottleneck.logprobs.extended_structure import power_law_finding
    from softmax_bottleneck.machine import resolve_device
    from softmax_bottleneck.parallel import launched
    from softmax_bottleneck.progress import SILENT

    check_outputs(json_to, save_spectrum, sources=[source], data=data)
    measured: Any = source
    if extended is not None:
        options = {"data": data, "split": split, "contexts": contexts, "dtype": dtype, "hugging_face": hugging_face}
        measured = extended_logits(source, *extended, device=resolve_device(device), **options)
        data, contexts, hugging_face = None, None, HuggingFaceOptions()
    if dry_run:
        opened = open_source(
            measured,
            data=data,
            split=split,
            contexts=contexts,
            kind=kind,
            dtype=dtype,
            device=resolve_device(device),
            hugging_face=hugging_face,
        )
        cost = estimate_cost(
            opened, method=method, eps=eps, max_memory=max_memory, width=width, device=resolve_device(device)
        )
        emit(cost.to_dict(), str(cost), json_to)
        return
    with launched() as processes:
        report = rank(
            measured,
            data=data,
            split=split,
            contexts=contexts,
            kind=kind,
            inf=inf,
            method=method,
            rule=rule,
            eps=eps,
            dtype=dtype,
            max_memory=max_memory,
            width=width,
            device=resolve_device(device),
            progress=progress() if processes.first else SILENT,
            processes=processes,
            hugging_face=hugging_face,
            estimate_hidden_size=estimate_hidden_size,
        )
    if not processes.first:
        return
    if extended is not None:
        report = replace(report, findings=(*report.findings, power_law_finding(report.spectrum.values)))
    if save_spectrum is not None:
        spectrum.save_spectrum(save_spectrum, report.spectrum, report.source)
    emit(report.to_dict(), str(report), json_to)
    if strict and not (report.rank.determinate and report.rank_centered.determinate):
        raise SystemExit(INDETERMINATE)
