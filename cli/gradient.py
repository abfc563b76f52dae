"""``bottleneck gradient``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .measurements import show
from .options import Count, example, json_option, progress
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


@click.command("gradient", epilog=example("bottleneck gradient demo/runs/softmax"))
@with_source(kind=False)
@click.option(
    "--sample",
    type=Count(),
    default=64,
    help="Number of contexts whose Jacobian is computed when the head is not log-linear.",
)
@json_option
def command(source: Source, sample: int, json_to: Path | None) -> None:
    """Measure how much of the loss gradient at the logits the output layer passes on to the hidden states.

    The gradient G = P − onehot(target) is projected onto the centred columns of W (Godey and Artzi 2026). For a head
    that is not log-linear, it is projected onto the centred columns of the Jacobian of log P at a context's hidden
    state, for a sample of contexts. SOURCE is a run folder or a Hugging Face model.
    """
    from softmax_bottleneck.measure import gradient

    show(gradient(source, sample=sample, progress=progress()), json_to)
