"""``bottleneck compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .measurements import show
from .options import Count, example, json_option, progress
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


@click.command("compare", epilog=example("bottleneck compare demo/runs/mos demo/runs/softmax --examples 3"))
@with_source(count=2, kind=False)
@click.option("--examples", type=Count(), default=5, help="Number of contexts to show for each model.")
@json_option
def command(sources: dict[str, Source], examples: int, json_to: Path | None) -> None:
    """Show the contexts where one model beats another by most, in negative log-likelihood (Yang et al. 2018, table 14).

    Each context is shown with the five most likely tokens of both models. The models must predict the same tokens: runs
    on one corpus, Hugging Face models with one tokenizer, or stores dumped from them.
    """
    from softmax_bottleneck.measure import compare

    first, second = sources.values()
    show(compare(first, second, examples=examples, progress=progress()), json_to)
