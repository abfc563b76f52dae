"""``bottleneck train``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from softmax_bottleneck.errors import ConfigurationError

from .completion import PRESETS, completing
from .options import device_option, example, progress
from .outputs import echo, echo_text

if TYPE_CHECKING:
    from softmax_bottleneck.training import RunConfig


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
    type=click.Path(path_type=Path),
    help="Use the configuration in a JSON, TOML or YAML file, or in the config.json of a run.",
)
@click.option(
    "--finetune",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Start from a finished run, and average weights until the validation loss no longer improves.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="RUN", help="Folder of the run.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one setting; example: training.epochs=3."
)
@click.option("--resume", is_flag=True, help="Fail unless there is a run to continue.")
@click.option("--print-config", is_flag=True, help="Only print the whole configuration, as JSON that --config reads.")
@click.option(
    "--dry-run", is_flag=True, help="Only make a few steps, and say what parameters, memory and time training takes."
)
@device_option
def command(
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
    saved state, and with --set training.epochs=N a finished run to more epochs; a second process in the same folder is
    refused. Under torchrun, several processes train one model, each on its share of the batch.
    """
    only_shown = print_config or dry_run
    starts = sum(option is not None for option in start.values())
    begun = not starts and out is not None and (out / "config.json").exists()
    if starts > 1 or not (starts or begun or settings or resume or only_shown):
        raise click.UsageError(
            "give one of --preset NAME, --config FILE and --finetune RUN ('bottleneck presets' lists the names), or "
            "only settings of the default configuration, as --set head.name=mos"
        )
    from softmax_bottleneck.core.files import json_bytes
    from softmax_bottleneck.language_models.checkpoint import read_config
    from softmax_bottleneck.training import complete, configuration_of, fit, override, training_cost

    if out is not None and (resume or begun):
        saved = configuration_of(read_config(out))
    config = override(saved if begun else _start(out, **start), settings)
    if out is None and (resume or not only_shown):
        raise click.UsageError("Missing option '--out': it names the folder of the run.")
    if print_config:
        echo_text(json_bytes(complete(config)).decode().rstrip())
        return
    if dry_run:
        echo_text(str(training_cost(config, device=device, progress=progress())))
        return
    _check_initial(start["preset"], config)
    assert out is not None
    done = fit(config, out, device=device, progress=progress())
    if os.environ.get("RANK", "0") == "0":
        averaged = f"weights averaged over the last {done.averaged_steps:,} steps"
        if not done.averaged_steps:
            averaged = "averaging of the weights never started"
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
