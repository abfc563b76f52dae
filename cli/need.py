"""``bottleneck need``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .measurements import show
from .options import WHOLE, example, json_option, listed, progress
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


@click.command("need", epilog=example("bottleneck need demo/runs/softmax"))
@with_source(kind=False)
@listed("--ranks", "ranks", WHOLE, metavar="R,R,…", help="Numbers of dimensions r.  [default: 1, 2, 4, … and d]")
@json_option
def command(source: Source, ranks: tuple[int, ...] | None, json_to: Path | None) -> None:
    """Measure how many dimensions of its output layer a model needs.

    The layer is reduced to r dimensions, fitted on the first half of the contexts (one smaller layer for all texts) and
    on the second half itself, and measured on the second half: KL divergence, perplexity, agreement, and acceptance
    1 − TV. The second fit says what the text spans, the first what the model needs. SOURCE is a run folder or a
    Hugging Face model with one set of logits.
    """
    from softmax_bottleneck.measure import need

    show(need(source, ranks=ranks, progress=progress()), json_to)
