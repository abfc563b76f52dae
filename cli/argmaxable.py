"""``bottleneck argmaxable``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from .measurements import show
from .options import Count, example, json_option, progress
from .sources import with_layer


@click.command("argmaxable", epilog=example("bottleneck argmaxable demo/runs/softmax"))
@with_layer
@click.option("--kind", type=click.Choice(["matrix"]), help="Not needed any more: a file is taken as W.")
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    help="Time limit for each token's linear program, in seconds; a token that exceeds it is reported as unknown.",
)
@click.option("--workers", type=Count(), help="Number of processes.  [default: one for each processor]")
@json_option
def command(
    source: str, limit: float, workers: int | None, json_to: Path | None, kind: str | None, **options: Any
) -> None:
    """Find the tokens that no context vector makes the most likely: their embeddings lie in the others' convex hull.

    SOURCE is a run folder, a Hugging Face model or a GGUF file with a single softmax, or W as FILE or FILE:NAME, one
    row per token. A text is not needed.
    """
    from softmax_bottleneck.core.machine import cores
    from softmax_bottleneck.measure import argmaxable

    show(argmaxable(source, limit=limit, workers=workers or cores(), progress=progress(), **options), json_to)
