"""``bottleneck eval``."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import rich_click as click

from .options import check_outputs, device_option, emit, example, json_option, progress

POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command("eval", epilog=example("bottleneck eval demo/runs/mos --split valid"))
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", metavar="CORPUS", help="Another corpus than the run's own.")
@click.option("--split", type=click.Choice(["train", "valid", "test"]), default="test", show_default=True)
@click.option("--dynamic", is_flag=True, help="Dynamic evaluation: go on learning from the text on the way.")
@click.option(
    "--cache", is_flag=True, help="Mix in a continuous cache; θ and its weight are chosen on the validation split."
)
@click.option("--learning-rate", type=POSITIVE, help="η of dynamic evaluation.  [default: 0.002]")
@click.option(
    "--decay",
    type=click.FloatRange(min=0),
    help="λ of dynamic evaluation.  [default: 0.02; mos on ptb 0.075]",
)
@click.option(
    "--epsilon",
    type=POSITIVE,
    help="ε of dynamic evaluation.  [default: 0.001; mos on wikitext-2 0.002]",
)
@click.option(
    "--window", type=click.IntRange(min=1), help="Contexts the cache holds.  [default: 500; on wikitext-2 3785]"
)
@device_option
@json_option
def command(
    run: Path,
    data: str | None,
    split: str,
    dynamic: bool,
    cache: bool,
    learning_rate: float | None,
    decay: float | None,
    epsilon: float | None,
    window: int | None,
    device: str,
    json_to: Path | None,
) -> None:
    """Compute the exact perplexity of a run: every token but the first, in one sequence.

    Or of an n-gram model, counted on the spot: kn5:ptb is the Kneser-Ney model of order 5 of that corpus.

    The defaults of --dynamic and --cache are the settings of published numbers: for MoS the MoS paper's, for all other
    heads those that Krause et al. gave AWD-LSTM, and for the cache those of AWD-LSTM's code.
    """
    rates: dict[str, Any] = {"learning_rate": learning_rate, "decay": decay, "epsilon": epsilon}
    given = {name: value for name, value in rates.items() if value is not None}
    if dynamic and cache:
        raise click.UsageError("give one of --dynamic and --cache")
    if given and not dynamic:
        raise click.UsageError(f"--{next(iter(given)).replace('_', '-')} goes with --dynamic")
    if window is not None and not cache:
        raise click.UsageError("--window goes with --cache")
    from softmax_bottleneck.checkpoint import corpus_of, load
    from softmax_bottleneck.evaluation import cached_scores, dynamic_scores, evaluate_source, published_dynamic
    from softmax_bottleneck.machine import resolve_device
    from softmax_bottleneck.sources import open_source
    from softmax_bottleneck.sources.ngram import is_ngram
    from softmax_bottleneck.training import evaluate

    check_outputs(json_to, sources=[run], data=data)
    settings: dict[str, Any] = {}
    how = "dynamic" if dynamic else "cache" if cache else "static"
    if is_ngram(str(run)):
        if how != "static":
            raise click.UsageError(f"--{how} is for runs; {run} is an n-gram model")
        source = open_source(run, data=data, split=split)
        scores, where = evaluate_source(source, progress=progress()), dict(source.description)
    else:
        loaded = load(run)
        corpus = corpus_of(loaded, data)
        loaded.model.to(resolve_device(device))
        where = {"path": str(run), "kind": "run", "corpus": corpus.name, "split": split}
        if dynamic:
            published = published_dynamic(loaded.model.config.head.name, corpus.name)
            chosen = replace(published, **given)
            scores = dynamic_scores(loaded, corpus, split=split, settings=chosen, progress=progress())
            settings = asdict(chosen)
        elif cache:
            scores, tuned = cached_scores(loaded, corpus, split=split, window=window, progress=progress())
            settings = {**asdict(tuned), "chosen_on": "valid"}
        else:
            scores = evaluate(loaded.model, corpus.split(split), progress=progress())
    bits = scores.loss / math.log(2)
    values = {
        "source": where,
        "how": how,
        "settings": settings,
        "tokens": scores.tokens,
        "loss": scores.loss,
        "bits": bits,
        "perplexity": scores.perplexity,
    }
    by = {"static": "", "dynamic": " by dynamic evaluation", "cache": " with a cache"}[how]
    text = (
        f"{split} perplexity{by} {scores.perplexity:.3f} (loss {scores.loss:.5f} nats, {bits:.5f} bits, "
        f"{scores.tokens:,} tokens)"
    )
    emit(values, text, json_to)
