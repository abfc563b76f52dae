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
@click.option("--data", metavar="CORPUS", help="Corpus to evaluate on.  [default: the corpus of the run]")
@click.option("--split", type=click.Choice(["train", "valid", "test"]), default="test", show_default=True,
              help="Split of the corpus.")  # fmt: skip
@click.option("--dynamic", is_flag=True, help="Use dynamic evaluation: train on the text while it is scored.")
@click.option(
    "--cache", is_flag=True, help="Mix in a continuous cache; its θ and weight are chosen on the validation split."
)
@click.option("--learning-rate", type=POSITIVE, help="Learning rate η of dynamic evaluation.  [default: 0.002]")
@click.option(
    "--decay",
    type=click.FloatRange(min=0),
    help="Decay rate λ of dynamic evaluation.  [default: 0.02; 0.075 for mos on ptb]",
)
@click.option(
    "--epsilon",
    type=POSITIVE,
    help="Constant ε of dynamic evaluation.  [default: 0.001; 0.002 for mos on wikitext-2]",
)
@click.option("--window", type=click.IntRange(min=1), help="Contexts in the cache.  [default: 500; 3785 on wikitext-2]")
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
    """Compute the exact perplexity of a run over every token but the first, as one sequence.

    RUN may also be an n-gram model: kn5:ptb is the Kneser-Ney model of order 5, counted on the corpus ptb.

    The defaults of --dynamic and --cache are published settings: for mos those of Yang et al. (2018), for all other
    heads those of Krause et al. (2018) for AWD-LSTM, and for the cache those of AWD-LSTM's code.
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
