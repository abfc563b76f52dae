"""``bottleneck kld``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .options import emit, example, json_option, progress
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


@click.command("kld", epilog=example("bottleneck kld demo/runs/mos"))
@with_source()
@click.option(
    "--pairs",
    metavar="all|N",
    default="all",
    show_default=True,
    help="Use all pairs of contexts, which is exact, or N random pairs, which gives a standard error.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random pairs.")
@json_option
def command(source: Source, pairs: str, seed: int, json_to: Path | None) -> None:
    """Compute the expected pairwise Kullback-Leibler (KL) divergence of the rows, in nats (Yang et al. 2018, table 11).

    All T² ordered pairs of contexts are used in one pass, including each context with itself. A row whose probabilities
    do not sum to one is normalized if rounding explains the difference, and refused otherwise.
    """
    if pairs != "all" and not pairs.isdecimal():
        raise click.BadParameter(f"{pairs!r} is neither 'all' nor a number", param_hint="--pairs")
    from softmax_bottleneck.measure import kld

    found = kld(source, pairs=pairs if pairs == "all" else int(pairs), seed=seed, progress=progress())
    emit(found.to_dict(), str(found), json_to)
