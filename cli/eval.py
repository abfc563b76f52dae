"""``bottleneck eval``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from .measurements import show
from .options import Count, example, json_option, progress
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source
    from softmax_bottleneck.training.evaluate import How

POSITIVE = click.FloatRange(min=0, min_open=True)
SETTINGS = {"learning_rate": "dynamic", "decay": "dynamic", "epsilon": "dynamic", "window": "cache"}
"""Options that set something of dynamic evaluation or of the cache."""


def _before_opening(command: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse options that do not go together before the source is opened."""

    @functools.wraps(command)
    def checked(**options: Any) -> Any:
        if options["dynamic"] and options["cache"]:
            raise click.UsageError("give one of --dynamic and --cache")
        if options["bleu"] and (options["dynamic"] or options["cache"]):
            raise click.UsageError("--bleu goes with neither --dynamic nor --cache")
        if options["answers"] is not None and not options["bleu"]:
            raise click.UsageError("--answers goes with --bleu")
        for name, how in SETTINGS.items():
            if options[name] is not None and not options[how]:
                raise click.UsageError(f"--{name.replace('_', '-')} goes with --{how}")
        return command(**options)

    return checked


@click.command("eval", epilog=example("bottleneck eval demo/runs/mos --split valid"))
@_before_opening
@with_source(kind=False)
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
    "--epsilon", type=POSITIVE, help="Constant ε of dynamic evaluation.  [default: 0.001; 0.002 for mos on wikitext-2]"
)
@click.option("--window", type=Count(), help="Contexts in the cache.  [default: 500; 3785 on wikitext-2]")
@click.option(
    "--bleu",
    is_flag=True,
    help="Answer each context by beam search, 5 responses of at most 30 tokens from a beam of 10, and score BLEU.",
)
@click.option("--answers", type=Count(), help="Contexts answered for --bleu.  [default: all]")
@json_option
def command(
    source: Source, dynamic: bool, cache: bool, bleu: bool, answers: int | None, json_to: Path | None, **settings: Any
) -> None:
    """Compute the exact perplexity of a model on a text.

    SOURCE is a run, which reads every token but the first as one sequence; a Hugging Face model, which reads windows as
    in 'bottleneck rank'; an n-gram model (kn5:ptb is the Kneser-Ney model of order 5, counted on the corpus ptb); or a
    store of log-probabilities. --dynamic and --cache are for runs.

    A run with the backbone encoder-decoder is scored on the lines that answer others, all tokens but each line's first.
    --bleu adds smoothed sentence-level BLEU against the line that follows, precision (mean) and recall (maximum) over
    the responses, with 95 % bootstrap intervals.

    The defaults of --dynamic and --cache are published settings: for mos those of Yang et al. (2018), for all other
    heads those of Krause et al. (2018) for AWD-LSTM, and for the cache those of AWD-LSTM's code.
    """
    from softmax_bottleneck.evaluation import perplexity, score_dialog

    changes = {name: value for name, value in settings.items() if value is not None}
    how: How = "dynamic" if dynamic else "cache" if cache else "static"
    scores = perplexity(source, how=how, settings=changes, progress=progress())
    show(score_dialog(source, scores, contexts=answers, progress=progress()) if bleu else scores, json_to)
