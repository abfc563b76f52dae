"""``bottleneck compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from .measurements import format_option, show_all
from .options import Count, example, json_option, progress
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source


@click.command("compare", epilog=example("bottleneck compare demo/runs/mos demo/runs/softmax --examples 3"))
@with_source(count=-2, metavar="REFERENCE MODEL…", device=True)
@click.option(
    "--examples",
    type=Count(0),
    default=5,
    help="Number of contexts to show where either of two sources is better; 0 for none.",
)
@click.option(
    "--like-llama-cpp",
    is_flag=True,
    help="Leave tokens below e^-16 in the reference out of KL, as llama.cpp's perplexity --kl-divergence does.",
)
@json_option
@format_option
@click.option("--details", is_flag=True, help="Print every number.")
def command(
    sources: dict[str, Source],
    device: str,
    examples: int,
    like_llama_cpp: bool,
    json_to: Path | None,
    as_format: str | None,
    details: bool,
) -> None:
    """Measure how far each MODEL's next-token distributions are from the REFERENCE's, and where each is better.

    The numbers are exact: perplexities, KL divergence with its percentiles, total variation and the acceptance rate of
    speculative sampling, the change of the target's probability, agreement of the likeliest tokens, and the rank of the
    difference. For two sources the contexts follow where one beats the other by most (Yang et al. 2018, table 14).

    All sources must be on the same tokens: runs on one corpus, Hugging Face models with one tokenizer, or stores and
    matrices of the same contexts. The REFERENCE may be a .kld file of llama.cpp, whose tokens models beside it read,
    or top-k log-probabilities (.jsonl, .parquet).
    """
    from softmax_bottleneck.measure import compare

    results = compare(sources, examples=examples, like_llama_cpp=like_llama_cpp, device=device, progress=progress())
    show_all(results, "details" if details else as_format, json_to)
