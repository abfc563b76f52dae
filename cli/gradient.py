"""``bottleneck gradient``."""

from __future__ import annotations

import time
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


@click.command("gradient", epilog=example("bottleneck gradient demo/runs/softmax"))
@click.argument("source")
@text_options
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Contexts whose Jacobian is taken, for a head that is not log-linear.",
)
@dtype_option
@device_option
@hugging_face_options
@json_option
def command(
    source: str,
    data: str | None,
    split: str,
    contexts: int | None,
    sample: int,
    dtype: str,
    device: str,
    json_to: str | None,
    hugging_face: HuggingFaceOptions,
) -> None:
    """Measure how much of the loss's gradient in the logits gets through the output layer to the hidden states.

    G = P − onehot(target) is projected onto the columns of W, less their means (Godey and Artzi 2026), or for a head
    that is not log-linear onto those of the Jacobian of log P at the hidden state of each of a sample of contexts.
    SOURCE is a run folder or a Hugging Face model.
    """
    from softmax_bottleneck.logprobs import gradient, open_source
    from softmax_bottleneck.machine import resolve_device

    check_outputs(json_to, sources=[source], data=data)
    started = time.monotonic()
    opened = open_source(
        source,
        data=data,
        split=split,
        contexts=contexts,
        dtype=dtype,
        device=resolve_device(device),
        hugging_face=hugging_face,
    )
    found = gradient(opened, sample=sample, progress=progress())
    seconds = round(time.monotonic() - started, 3)
    values = {"source": dict(opened.description), **found.to_dict(), "seconds": seconds, "version": __version__}
    emit(values, str(found), json_to)
