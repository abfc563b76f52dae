"""``bottleneck compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from softmax_bottleneck._version import __version__

from .options import (
    check_outputs,
    device_option,
    dtype_option,
    emit,
    example,
    hugging_face_options,
    json_option,
    progress,
    text_options,
)

if TYPE_CHECKING:
    from softmax_bottleneck.logprobs import HuggingFaceOptions


@click.command("compare", epilog=example("bottleneck compare demo/runs/mos demo/runs/softmax --examples 3"))
@click.argument("first", metavar="SOURCE")
@click.argument("second", metavar="SOURCE")
@text_options
@click.option("--examples", type=click.IntRange(min=1), default=5, show_default=True, help="Contexts each way.")
@dtype_option
@device_option
@hugging_face_options
@json_option
def command(
    first: str,
    second: str,
    data: str | None,
    split: str,
    contexts: int | None,
    examples: int,
    dtype: str,
    device: str,
    json_to: str | None,
    hugging_face: HuggingFaceOptions,
) -> None:
    """Show where one model beats another: the largest margins of negative log-likelihood (MoS paper, table 14).

    Both are shown with their five likeliest tokens. The two must predict the same tokens: runs on one corpus, Hugging
    Face models with one tokenizer, or stores dumped from them.
    """
    from softmax_bottleneck.logprobs import compare, open_source
    from softmax_bottleneck.machine import resolve_device

    check_outputs(json_to, sources=(first, second), data=data)
    opened = [
        open_source(
            source,
            data=None if source.endswith(".zarr") else data,  # a store has its own text
            split=split,
            contexts=contexts,
            dtype=dtype,
            device=resolve_device(device),
            hugging_face=None if source.endswith(".zarr") else hugging_face,
        )
        for source in (first, second)
    ]
    found = compare(opened[0], opened[1], examples=examples, progress=progress())
    emit({**found.to_dict(), "version": __version__}, str(found), json_to)
