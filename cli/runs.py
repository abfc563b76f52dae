"""What makes runs and reads them: the presets, training, evaluation, and a run without its training state."""

from __future__ import annotations

import functools
import os
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import rich_click as click

from softmax_bottleneck.errors import ConfigurationError

from .options import PRESETS, Command, Count, completing, device_option, example, json_option, progress
from .outputs import echo, echo_text, emit, show
from .paths import Folder, Input
from .sources import with_source

if TYPE_CHECKING:
    from softmax_bottleneck.sources import Source
    from softmax_bottleneck.training import RunConfig
    from softmax_bottleneck.training.evaluate import How

POSITIVE = click.FloatRange(min=0, min_open=True)
GO_WITH = {"answers": "bleu", "learning_rate decay epsilon": "dynamic", "window": "cache"}
"""Options of one way of evaluation."""


@click.command("presets", epilog=example("bottleneck presets 'ptb-*'"))
@click.argument("pattern", default="*", metavar="[NAME|PATTERN]", shell_complete=completing(PRESETS))
@json_option
def presets(pattern: str, json_to: Path | None) -> None:
    """List the named configurations with their parameters, expected cost, expected result and its source.

    A PATTERN such as 'ptb-*' selects some of them; a NAME shows one in full, with its command and its configuration.
    'bottleneck train --preset NAME --out RUN' trains one.
    """
    from softmax_bottleneck.training.presets import describe, matching

    values = describe(matching(pattern))
    text = _in_full(values[0]) if pattern == values[0]["name"] else "\n".join(map(_in_short, values))
    emit({"kind": "presets", "presets": values}, text, json_to)


def _in_short(preset: dict[str, Any]) -> str:
    size, expected = _size(preset["parameters"]), f"expected: {preset['expected']}"
    about = f"{preset['summary']}; {size}; {preset['cost']}"
    return "\n".join([preset["name"], *map(_wrapped, (about, expected))])


def _in_full(preset: dict[str, Any]) -> str:
    from softmax_bottleneck.training import as_toml

    rows = [f"corpus: {preset['corpus']}", f"command: {preset['command']}", "configuration:"]
    configuration = as_toml(preset["config"]).rstrip()
    return "\n".join([_in_short(preset), *map(_wrapped, rows), textwrap.indent(configuration, "    ")])


def _wrapped(text: str) -> str:
    """Return text in lines that fit the terminal, indented under the name of a preset."""
    width = min(100, shutil.get_terminal_size().columns)
    return textwrap.fill(text, width, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)


def _size(parameters: int | None) -> str:
    return "size depends on the corpus" if parameters is None else f"{parameters / 1e6:.2f}M parameters"


@click.command("train", epilog=example("bottleneck train --preset demo-softmax --out softmax"))
@click.option(
    "--preset",
    metavar="NAME",
    shell_complete=completing(PRESETS),
    help="Use a configuration that 'bottleneck presets' lists.",
)
@click.option(
    "--config",
    "config_file",
    type=Input(Path),
    help="Use the configuration in a TOML file, or in the config.json of a run.",
)
@click.option(
    "--finetune",
    type=Input(Path),
    metavar="RUN",
    help="Start from a finished run, and average weights until the validation loss no longer improves.",
)
@click.option("--out", type=Folder(), metavar="RUN", help="Folder of the run.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one setting; example: training.epochs=3."
)
@click.option("--resume", is_flag=True, help="Fail unless there is a run to continue.")
@click.option("--print-config", is_flag=True, help="Only print the whole configuration, as TOML that --config reads.")
@click.option(
    "--dry-run", is_flag=True, help="Only make a few steps, and say what parameters, memory and time training takes."
)
@device_option
def train(
    out: Path | None,
    settings: tuple[str, ...],
    resume: bool,
    print_config: bool,
    dry_run: bool,
    device: str,
    **start: Any,
) -> None:
    """Train a language model into a run folder.

    Without --preset, --config and --finetune, the configuration is that of the run in --out, or else the default: a
    small LSTM (long short-term memory) on python-docs. The same command continues an interrupted run from its last
    saved state; a second process in the same folder is refused. Under torchrun, several processes train one model, each
    on its share of the batch.
    """
    only_shown = print_config or dry_run
    starts = sum(option is not None for option in start.values())
    begun = not starts and out is not None and (out / "config.json").exists()
    if starts > 1 or not (starts or begun or settings or resume or only_shown):
        raise click.UsageError(
            "give one of --preset NAME, --config FILE and --finetune RUN ('bottleneck presets' lists the names), or "
            "only settings of the default configuration, as --set head.name=mos"
        )
    from softmax_bottleneck.language_models.checkpoint import read_config
    from softmax_bottleneck.training import as_toml, complete, configuration_of, fit, override, training_cost

    if out is not None and (resume or begun):
        saved = configuration_of(read_config(out))
    config = override(saved if begun else _start(out, **start), settings)
    if out is None and (resume or not only_shown):
        raise click.UsageError("Missing option '--out': it names the folder of the run.")
    if print_config:
        echo_text(as_toml(complete(config)).rstrip())
        return
    if dry_run:
        echo_text(str(training_cost(config, device=device, progress=progress())))
        return
    _check_initial(start["preset"], config)
    assert out is not None
    done = fit(config, out, device=device, progress=progress())
    if os.environ.get("RANK", "0") == "0":
        averaged = f"weights averaged over {done.averaged_steps:,} steps"
        if not done.averaged_steps:
            averaged = "the best weights are not averages"
        echo(
            f"{done.path}: test perplexity {done.test.perplexity:.2f} on {done.test.tokens:,} tokens",
            f"{done.parameters:,} parameters, trained for {done.seconds:.0f} s"
            + (f", {averaged}" if config.training.averaging.start != "never" else ""),
        )


def _start(out: Path | None, *, preset: str | None, config_file: Path | None, finetune: Path | None) -> RunConfig:
    """Return the configuration that settings change."""
    from softmax_bottleneck.language_models.checkpoint import read_config
    from softmax_bottleneck.training import RunConfig, configuration_of, finetuning, is_begun, read
    from softmax_bottleneck.training.presets import find

    if preset is not None:
        return find(preset).config
    if config_file is not None:
        return read(config_file)
    if finetune is not None:
        if out is not None and is_begun(out) and not finetune.exists():  # it is not needed any more
            return configuration_of(read_config(out))
        return finetuning(finetune)
    return RunConfig()


def _check_initial(preset: str | None, config: RunConfig) -> None:
    """Refuse a preset that starts from trained weights without any."""
    from softmax_bottleneck.training.presets import find

    if preset is not None and config.initial is None and (other := find(preset).initial):
        raise ConfigurationError(
            f"{preset} starts from trained weights: add --set initial=RUN, with RUN a run of {other}"
        )


def _before_opening(command: Command) -> Command:
    """Refuse options that do not go together before the source is opened."""

    @functools.wraps(command)
    def checked(**options: Any) -> Any:
        if options["dynamic"] and options["cache"]:
            raise click.UsageError("give one of --dynamic and --cache")
        if options["bleu"] and (options["dynamic"] or options["cache"]):
            raise click.UsageError("--bleu goes with neither --dynamic nor --cache")
        for names, with_option in GO_WITH.items():
            given = [name for name in names.split() if options[name] is not None]
            if given and not options[with_option]:
                raise click.UsageError(f"--{given[0].replace('_', '-')} goes with --{with_option}")
        return command(**options)

    return cast(Command, checked)


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
def evaluate(
    source: Source, dynamic: bool, cache: bool, bleu: bool, answers: int | None, json_to: Path | None, **settings: Any
) -> None:
    """Compute the exact perplexity of a model on a text.

    SOURCE is a run, which reads every token but the first as one sequence; a Hugging Face model, which reads windows as
    in 'bottleneck rank'; an n-gram model (kn5:ptb is the Kneser-Ney model of order 5, counted on the corpus ptb); or a
    store of log-probabilities. --dynamic and --cache are for runs.

    A run with the backbone encoder-decoder is scored on the lines that answer others, all tokens but each line's first.
    --bleu adds smoothed sentence-level BLEU against the line that follows, precision (mean) and recall (maximum) over
    the responses, with 95 % bootstrap intervals.

    The defaults of --dynamic and --cache are published settings: for mos on ptb and wikitext-2 those of Yang et al.
    (2018), otherwise those of Krause et al. (2018) for AWD-LSTM, and for the cache those of AWD-LSTM's code.
    """
    from softmax_bottleneck.evaluation import perplexity, score_dialog

    if bleu:
        show(score_dialog(source, contexts=answers, progress=progress()), json_to)
        return
    changes = {name: value for name, value in settings.items() if value is not None}
    how: How = "dynamic" if dynamic else "cache" if cache else "static"
    show(perplexity(source, how=how, settings=changes, progress=progress()), json_to)


@click.command("copy", epilog=example("bottleneck copy demo/runs/mos --out small"))
@click.argument("run", type=Input(Path))
@click.option("--out", required=True, type=Folder(), metavar="RUN", help="Folder of the copy.")
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float32"]),
    default="bfloat16",
    help="Type of the weights on disk; bfloat16 rounds them to 8 bits, float32 keeps them.",
)
def copy(run: Path, out: Path, dtype: str) -> None:
    """Copy a finished run without its training state, its weights in bfloat16; every command takes the smaller copy.

    Rounded weights change perplexities and ranks a little: --dtype float32 keeps them.
    """
    import torch

    from softmax_bottleneck.language_models.checkpoint import copy_weights

    copied = copy_weights(run, out, dtype=getattr(torch, dtype))
    size = sum(file.stat().st_size for file in copied.iterdir())
    echo(f"{copied}: {size:,} bytes, weights in {dtype}")
