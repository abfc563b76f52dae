"""``bottleneck argmaxable``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import rich_click as click

from softmax_bottleneck._version import __version__

from .options import check_outputs, emit, example, hugging_face_options, json_option, progress

if TYPE_CHECKING:
    from softmax_bottleneck.logprobs import HuggingFaceOptions


@click.command("argmaxable", epilog=example("bottleneck argmaxable demo/runs/softmax"))
@click.argument("source")
@click.option("--data", metavar="CORPUS|FILE.txt", help="Another text to open the model with; no result depends on it.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Limit of each token's linear program; what it stops is reported as unknown.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a processor]")
@hugging_face_options
@json_option
def command(
    source: str,
    data: str | None,
    seconds: float,
    workers: int | None,
    json_to: str | None,
    hugging_face: HuggingFaceOptions,
) -> None:
    """Find the tokens that no context vector makes the likeliest: those in the convex hull of the others.

    SOURCE is a run folder or a Hugging Face model with a single softmax, or a .npy or .safetensors file that holds the
    output embeddings, one row a token.
    """
    from softmax_bottleneck.logprobs import argmaxable, open_source
    from softmax_bottleneck.theory.argmaxable import cores

    check_outputs(json_to, sources=[source], data=data)
    started = time.monotonic()
    opened = open_source(source, data=data, kind="matrix", hugging_face=hugging_face)
    found = argmaxable(opened, seconds=seconds, workers=workers or cores(), progress=progress())
    took = round(time.monotonic() - started, 3)
    values = {"source": dict(opened.description), **found.to_dict(), "seconds": took, "version": __version__}
    emit(values, str(found), json_to)
