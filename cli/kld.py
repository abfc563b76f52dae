"""``bottleneck kld``."""

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
    kind_option,
    progress,
    text_options,
)

if TYPE_CHECKING:
    from softmax_bottleneck.logprobs import HuggingFaceOptions


@click.command("kld", epilog=example("bottleneck kld demo/runs/mos"))
@click.argument("source")
@text_options
@kind_option
@dtype_option
@click.option("--pairs", default="all", show_default=True, metavar="all|N", help="All T² pairs, or N drawn ones.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draw.")
@device_option
@hugging_face_options
@json_option
def command(
    source: str,
    data: str | None,
    split: str,
    contexts: int | None,
    kind: str,
    dtype: str,
    pairs: str,
    seed: int,
    device: str,
    json_to: str | None,
    hugging_face: HuggingFaceOptions,
) -> None:
    """Compute the expected pairwise KL divergence of the rows, in nats (MoS paper, table 11).

    Exact over all T² ordered pairs of contexts in one pass, a context with itself included. Rows are normalized where
    rounding explains that their probabilities do not sum to one, and refused elsewhere.
    """
    if pairs != "all" and not pairs.isdecimal():
        raise click.BadParameter(f"{pairs!r} is neither 'all' nor a number", param_hint="--pairs")
    from softmax_bottleneck.logprobs import kld, open_source
    from softmax_bottleneck.machine import resolve_device

    check_outputs(json_to, sources=[source], data=data)
    started = time.monotonic()
    opened = open_source(
        source,
        data=data,
        split=split,
        contexts=contexts,
        kind=kind,
        dtype=dtype,
        device=resolve_device(device),
        hugging_face=hugging_face,
    )
    found = kld(opened, pairs=pairs if pairs == "all" else int(pairs), seed=seed, progress=progress())
    values = {
        "source": dict(opened.description),
        "contexts": found.contexts,
        "vocab": found.vocab,
        "pairs": found.pairs,
        "kld": found.kld,
        "standard_error": found.standard_error,
        "roundoff": found.roundoff,
        "largest_log_sum": found.largest_log_sum,
        "eps": found.eps.to_dict(),
        "seconds": round(time.monotonic() - started, 3),
        "version": __version__,
    }
    emit(values, str(found), json_to)
