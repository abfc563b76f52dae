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
    help="All pairs of contexts, exactly, or N pairs drawn at random, with a standard error.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draw.")
@json_option
def command(source: Source, pairs: str, seed: int, json_to: Path | None) -> None:
    """Compute the expected pairwise KL divergence of the rows, in nats (MoS paper, table 11).

    Exact over all T² ordered pairs of contexts in one pass, a context with itself included. Rows are normalized where
    rounding explains that their probabilities do not sum to one, and refused elsewhere.
    """
    if pairs != "all" and not pairs.isdecimal():
        raise click.BadParameter(f"{pairs!r} is neither 'all' nor a number", param_hint="--pairs")
    from softmax_bottleneck.measure import kld

    found = kld(source, pairs=pairs if pairs == "all" else int(pairs), seed=seed, progress=progress())
    emit(found.to_dict(), str(found), json_to)
