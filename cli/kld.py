"""``bottleneck kld``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import rich_click as click

from .measurements import format_option, measure_all, show_all
from .options import Count, example, json_option, progress
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


@click.command("kld", epilog=example("bottleneck kld demo/runs/mos"))
@with_source(count=-1)
@click.option(
    "--pairs",
    metavar="all|N",
    default="all",
    help="Use all pairs of contexts, which is exact, or N random pairs, which gives a standard error.",
)
@click.option("--seed", type=Count(0), help="Seed of the random pairs.  [default: 0]")
@json_option
@format_option
def command(
    sources: dict[str, Source], pairs: str, seed: int | None, json_to: Path | None, as_format: str | None
) -> None:
    """Compute the expected pairwise Kullback-Leibler (KL) divergence of the rows, in nats (Yang et al. 2018, table 11).

    All T² ordered pairs of contexts are used in one pass, including each context with itself. A row whose probabilities
    do not sum to one is normalized if rounding explains the difference, and refused otherwise.
    """
    if pairs != "all" and not (pairs.isdecimal() and len(pairs) < 19):
        raise click.BadParameter(f"{pairs!r} is neither 'all' nor a number below 10^18", param_hint="--pairs")
    if pairs == "all" and seed is not None:
        raise click.UsageError("--seed is that of random pairs: give --pairs N as well")
    from softmax_bottleneck.measure import kld

    drawn: Literal["all"] | int = "all" if pairs == "all" else int(pairs)
    measure_all(
        sources,
        lambda source: kld(source, pairs=drawn, seed=seed or 0, progress=progress()),
        lambda results: show_all(results, as_format, json_to),
    )
