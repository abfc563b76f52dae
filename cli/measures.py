"""The measurements of one model beside its rank, and those of several beside each other."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from click.core import ParameterSource
from click.exceptions import Exit

from softmax_bottleneck.core.options import ARGMAXABLE, COMPARE, DUMP, GRADIENT, KLD, LAYER, NEED, OPENING, Option

from .options import example, format_option, json_option, options_of, progress
from .outputs import echo, show, show_all
from .paths import Folder, Input
from .sources import measure_all, with_layer, with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source

NONE_PASSES = 4
"""Exit status when no model keeps the limits."""


def measurement(
    line: str, options: Mapping[str, Option] | None = None, *, count: int = 1, opening: Any = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes the command of a library function from a function of its name.

    The docstring is the help, and ``line`` the example. The body is called with the options before a source is
    measured: it may refuse them, and return others in their place. ``count`` is as for `with_source`, and ``opening``
    adds the source in another way.
    """

    def decorate(check: Callable[..., Any]) -> click.Command:
        @functools.wraps(check)
        def command(*, json_to: Path | None, as_format: str | None = None, **given: Any) -> None:
            from softmax_bottleneck import measure

            source = given.pop("source" if count == 1 else "sources")
            given |= check(**given) or {}
            function = getattr(measure, check.__name__)
            if "progress" in inspect.signature(function).parameters:
                given["progress"] = progress()
            function = functools.partial(function, **given)
            if count == 1:
                show(function(source), json_to)
            else:
                measure_all(source, function, lambda results: show_all(results, as_format, json_to))

        decorated: Any = json_option(format_option(command) if count != 1 else command)
        decorated = (opening or with_source(count=count, kind=count != 1))(options_of(options or {})(decorated))
        return click.command(check.__name__, epilog=example(line))(decorated)

    return decorate


@measurement("bottleneck kld demo/runs/mos", KLD, count=-1)
def kld(pairs: int | str, **_: Any) -> None:
    """Compute the expected pairwise Kullback-Leibler (KL) divergence of the rows, in nats (Yang et al. 2018, table 11).

    All T² ordered pairs of contexts are used in one pass, including each context with itself. A row whose probabilities
    do not sum to one is normalized if rounding explains the difference, and refused otherwise.
    """
    context = click.get_current_context()
    assert context is not None
    if pairs == "all" and context.get_parameter_source("seed") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--seed is that of random pairs: give --pairs N as well")


@click.command("compare", epilog=example("bottleneck compare demo/runs/mos demo/runs/softmax --examples 3"))
@with_source(count=-2, metavar="REFERENCE MODEL…", device=True)
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

    A model passes if the worse end of each 95 % interval keeps its limit. The exit status is 4 when no model passes.
    """
    from softmax_bottleneck.measure import compare

    results = compare(sources, device=device, progress=progress(), **options)
    show_all(results, as_format or ("details" if details else None), json_to)
    if not any(each.passed for each in results):
        raise Exit(NONE_PASSES)


@measurement("bottleneck gradient demo/runs/softmax", GRADIENT)
def gradient(**_: Any) -> None:
    """Measure how much of the loss gradient at the logits the output layer passes on to the hidden states.

    The gradient G = P − onehot(target) is projected onto the centred columns of W (Godey and Artzi 2026). For a head
    that is not log-linear, it is projected onto the centred columns of the Jacobian of log P at a context's hidden
    state, for a sample of contexts. SOURCE is a run folder or a Hugging Face model.
    """


@measurement("bottleneck need demo/runs/softmax", NEED)
def need(**_: Any) -> None:
    """Measure how many dimensions of its output layer a model needs.

    The layer is reduced to r dimensions, fitted on the first half of the contexts (one smaller layer for all texts) and
    on the second half itself, and measured on the second half: KL divergence, perplexity, agreement, and acceptance
    1 − TV. The second fit says what the text spans, the first what the model needs. Layers that are trained (--train)
    say what one of that size reaches. SOURCE is a run folder, a Hugging Face model or a folder of hidden states, with
    one set of logits.
    """


@measurement("bottleneck head demo/runs/softmax", opening=with_layer)
def head(**_: Any) -> None:
    """Describe an output layer from its weights alone: spectrum, bound, mean row, and rows that stand out.

    SOURCE is a run folder, a Hugging Face model, a GGUF file, or W as FILE or FILE:NAME. A text is not needed. Rows
    that were never trained are found by their cosine to rows known to be unused (Land and Bartolo 2024).
    """


@measurement("bottleneck argmaxable demo/runs/softmax", ARGMAXABLE, opening=with_layer)
def argmaxable(workers: int | None, **_: Any) -> dict[str, Any]:
    """Find the tokens that no context vector makes the most likely: their embeddings lie in the others' convex hull.

    SOURCE is a run folder, a Hugging Face model or a GGUF file with a single softmax, or W as FILE or FILE:NAME, one
    row per token. A text is not needed.
    """
    from softmax_bottleneck.core.machine import cores

    return {"workers": workers or cores()}


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
    from softmax_bottleneck.sources.kinds import find_with

    opening: Any = {name: options.pop(name) for name in ROWS}
    of_both = {*find_with(rows, opening["head"]).takes} & options.keys() - (set() if opening["head"] else {"bias"})
    opening |= {name: options[name] for name in of_both}
    named: Any = list(models)
    layer: Any = options
    show_all(identify(rows, named, layer=layer, progress=progress(), **opening), as_format, json_to)


@click.command("dump", epilog=example("bottleneck dump demo/runs/mos --out demo/mos.zarr"))
@with_source()
@click.option("--out", required=True, type=Folder(), metavar="STORE.zarr", help="Store, folder or file to write.")
@options_of(DUMP)
def dump(source: Source, out: Path, states: bool, top: int | None) -> None:
    """Write the matrix of log-probabilities to a Zarr store; the same command continues an interrupted dump.

    Hidden states with their output layer (--states) give every command the same numbers as the model; the likeliest
    tokens (--top) are a reference of 'bottleneck compare', which gives intervals.
    """
    from softmax_bottleneck.measure.dumping import dump

    dump(source, out, states=states, top=top, progress=progress())
    T, M = source.shape if top is None else source.scored().shape
    what = f"{source.embedding_size:,} dimensions" if states else f"{min(top or M, M):,} tokens"
    dtype = source.description.get("body_dtype", source.dtype) if states else source.dtype
    echo(f"{out}: {T:,} contexts × {what}, {dtype}")
