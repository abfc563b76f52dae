"""The measurements of one model beside its rank, and those of several beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import rich_click as click
from click.exceptions import Exit

from softmax_bottleneck.core.options import COMPARE, LAYER, OPENING

from .options import WHOLE, Count, example, format_option, json_option, listed, options_of, progress
from .outputs import echo, show, show_all
from .paths import Folder, Input
from .sources import measure_all, with_layer, with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source

NONE_PASSES = 4
"""Exit status when no model keeps the limits."""


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
def kld(sources: dict[str, Source], pairs: str, seed: int | None, json_to: Path | None, as_format: str | None) -> None:
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
@options_of(COMPARE)
@json_option
@format_option
@click.option("--details", is_flag=True, help="Print every number.")
def compare(
    sources: dict[str, Source],
    device: str,
    json_to: Path | None,
    as_format: str | None,
    details: bool,
    **options: Any,
) -> None:
    """Measure how far each MODEL's next-token distributions are from the REFERENCE's, and where each is better.

    The numbers are exact: perplexities, KL divergence with its percentiles, total variation and the acceptance rate of
    speculative sampling, the change of the target's probability, agreement of the likeliest tokens, and the rank of the
    difference. For two sources the contexts follow where one beats the other by most (Yang et al. 2018, table 14).

    All sources must be on the same tokens: runs on one corpus, Hugging Face models with one tokenizer, or stores and
    matrices of the same contexts. The REFERENCE may be a .kld file of llama.cpp, whose tokens models beside it read,
    or top-k log-probabilities (.jsonl, .parquet).

    A model passes if it surely keeps every limit: the end of the 95 % interval keeps it. The exit status is 4 when no
    model passes.
    """
    from softmax_bottleneck.measure import compare

    results = compare(sources, device=device, progress=progress(), **options)
    show_all(results, "details" if details else as_format, json_to)
    if not any(each.passed for each in results):
        raise Exit(NONE_PASSES)


@click.command("gradient", epilog=example("bottleneck gradient demo/runs/softmax"))
@with_source(kind=False)
@click.option(
    "--sample",
    type=Count(),
    default=64,
    help="Number of contexts whose Jacobian is computed when the head is not log-linear.",
)
@json_option
def gradient(source: Source, sample: int, json_to: Path | None) -> None:
    """Measure how much of the loss gradient at the logits the output layer passes on to the hidden states.

    The gradient G = P − onehot(target) is projected onto the centred columns of W (Godey and Artzi 2026). For a head
    that is not log-linear, it is projected onto the centred columns of the Jacobian of log P at a context's hidden
    state, for a sample of contexts. SOURCE is a run folder or a Hugging Face model.
    """
    from softmax_bottleneck.measure import gradient

    show(gradient(source, sample=sample, progress=progress()), json_to)


@click.command("need", epilog=example("bottleneck need demo/runs/softmax"))
@with_source(kind=False)
@listed("--ranks", "ranks", WHOLE, metavar="R,R,…", help="Numbers of dimensions r.  [default: 1, 2, 4, … and d]")
@json_option
def need(source: Source, ranks: tuple[int, ...] | None, json_to: Path | None) -> None:
    """Measure how many dimensions of its output layer a model needs.

    The layer is reduced to r dimensions, fitted on the first half of the contexts (one smaller layer for all texts) and
    on the second half itself, and measured on the second half: KL divergence, perplexity, agreement, and acceptance
    1 − TV. The second fit says what the text spans, the first what the model needs. SOURCE is a run folder or a
    Hugging Face model with one set of logits.
    """
    from softmax_bottleneck.measure import need

    show(need(source, ranks=ranks, progress=progress()), json_to)


@click.command("head", epilog=example("bottleneck head demo/runs/softmax"))
@with_layer
@json_option
def head(source: str, json_to: Path | None, **options: Any) -> None:
    """Describe an output layer from its weights alone: spectrum, bound, mean row, and rows that stand out.

    SOURCE is a run folder, a Hugging Face model, a GGUF file, or W as FILE or FILE:NAME. A text is not needed. Rows
    that were never trained are found by their cosine to rows known to be unused (Land and Bartolo 2024).
    """
    from softmax_bottleneck.measure import head

    show(head(source, **options), json_to)


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
def argmaxable(
    source: str, limit: float, workers: int | None, json_to: Path | None, kind: str | None, **options: Any
) -> None:
    """Find the tokens that no context vector makes the most likely: their embeddings lie in the others' convex hull.

    SOURCE is a run folder, a Hugging Face model or a GGUF file with a single softmax, or W as FILE or FILE:NAME, one
    row per token. A text is not needed.
    """
    from softmax_bottleneck.core.machine import cores
    from softmax_bottleneck.measure import argmaxable

    show(argmaxable(source, limit=limit, workers=workers or cores(), progress=progress(), **options), json_to)


ROWS = {name: OPENING[name] for name in ("data", "split", "contexts", "kind", "head", "norm", "scale", "softcap")}


@click.command("identify", epilog=example("bottleneck identify demo/runs/softmax demo/runs/softmax demo/runs/moc"))
@click.argument("rows", type=Input())
@click.argument("models", nargs=-1, required=True, metavar="MODEL…", type=Input())
@options_of(ROWS)
@options_of(LAYER)
@json_option
@format_option
def identify(
    rows: str,
    models: tuple[str, ...],
    json_to: Path | None,
    as_format: str | None,
    **options: Any,
) -> None:
    """Say which MODEL rows of log-probabilities come from, by exact algebra; nothing is trained.

    ROWS is a matrix file, a store or another SOURCE; MODEL is a run folder, a Hugging Face model, a GGUF file, or W
    as FILE or FILE:NAME. Row-centred rows of a model lie in the span of its W (Finlayson et al. 2024), and its states
    on the ellipse of its final norm (Finlayson et al. 2025).
    """
    from softmax_bottleneck.measure import identify

    opening: Any = {name: options.pop(name) for name in ROWS}
    named: Any = list(models)
    layer: Any = options
    show_all(identify(rows, named, layer=layer, progress=progress(), **opening), as_format, json_to)


@click.command("dump", epilog=example("bottleneck dump demo/runs/mos --out demo/mos.zarr"))
@with_source()
@click.option("--out", required=True, type=Folder(), metavar="STORE.zarr", help="Store, folder or file to write.")
@click.option(
    "--states",
    is_flag=True,
    help="Write a folder with the hidden states and the output layer instead; it is a SOURCE too, and far smaller.",
)
@click.option("--top", type=Count(), metavar="K", help="Write a .parquet file of the K likeliest tokens instead.")
def dump(source: Source, out: Path, states: bool, top: int | None) -> None:
    """Write the matrix of log-probabilities to a Zarr store; the same command continues an interrupted dump.

    Hidden states with their output layer (--states) give every command the same numbers as the model; the likeliest
    tokens (--top) are a reference of 'bottleneck compare', which gives intervals.
    """
    from softmax_bottleneck.measure.dumping import dump

    dump(source, out, states=states, top=top, progress=progress())
    T, M = source.shape
    what = f"{source.embedding_size:,} dimensions" if states else f"{min(top or M, M):,} tokens"
    echo(f"{out}: {T:,} contexts × {what}, {source.dtype}")
