"""``bottleneck argmaxable``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .measurements import show
from .options import Count, example, json_option, progress
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


@click.command("argmaxable", epilog=example("bottleneck argmaxable demo/runs/softmax"))
@with_source()
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    help="Time limit for each token's linear program, in seconds; a token that exceeds it is reported as unknown.",
)
@click.option("--workers", type=Count(), help="Number of processes.  [default: one for each processor]")
@json_option
def command(source: Source, limit: float, workers: int | None, json_to: Path | None) -> None:
    """Find the tokens that no context vector makes the most likely: their embeddings lie in the others' convex hull.

    SOURCE is a run folder or a Hugging Face model with a single softmax. With --kind matrix, it is a matrix
    file of the output embeddings, one row per token. The answer depends on these alone, and on no text.
    """
    from softmax_bottleneck.core.machine import cores
    from softmax_bottleneck.measure import argmaxable

    show(argmaxable(source, limit=limit, workers=workers or cores(), progress=progress()), json_to)
