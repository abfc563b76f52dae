"""``bottleneck train``."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click

from .options import device_option, example, progress


@click.command(
    "train", epilog=example("bottleneck train --preset demo-softmax --set training.epochs=1 --out demo/runs/short")
)
@click.option("--preset", metavar="NAME", help="Use a configuration that 'bottleneck presets' lists.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="Use the configuration in a JSON file.")
@click.option(
    "--finetune",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Start from a finished run, and average weights until the validation loss no longer improves.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="RUN", help="Folder of the run.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one setting; example: training.epochs=3."
)
@click.option("--resume", is_flag=True, help="Fail unless there is a run to continue.")
@device_option
def command(
    preset: str | None,
    config_file: Path | None,
    finetune: Path | None,
    out: Path,
    settings: tuple[str, ...],
    resume: bool,
    device: str,
) -> None:
    """Train a language model into a run folder.

    Without --preset, --config and --finetune, --set changes the default configuration, a small LSTM (long short-term
    memory) on python-docs. The same command continues an interrupted run from its last saved state; a second process in
    the same folder is refused. Under torchrun, several processes train one model, each on its share of the batch.
    """
    given = sum(option is not None for option in (preset, config_file, finetune))
    if given > 1 or not (given or resume or settings):
        raise click.UsageError(
            "give one of --preset NAME, --config FILE and --finetune RUN ('bottleneck presets' lists the names), or "
            "only settings of the default configuration, as --set head.name=mos"
        )
    from softmax_bottleneck.checkpoint import read_config
    from softmax_bottleneck.errors import ConfigurationError
    from softmax_bottleneck.training import RunConfig, finetuning, fit, is_begun, override, read
    from softmax_bottleneck.training.fit import configuration_of
    from softmax_bottleneck.training.presets import find

    if resume:
        saved = read_config(out)
    if preset is not None:
        config = find(preset).config
    elif config_file is not None:
        config = read(config_file)
    elif finetune is not None:
        gone = is_begun(out) and not finetune.exists()  # it is not needed any more
        config = configuration_of(read_config(out)) if gone else finetuning(finetune)
    else:
        config = configuration_of(saved) if resume else RunConfig()
    config = override(config, settings)
    if preset is not None and config.initial is None and (other := find(preset).initial):
        raise ConfigurationError(
            f"{preset} starts from trained weights: add --set initial=RUN, with RUN a run of {other}"
        )
    done = fit(config, out, device=device, progress=progress())
    if os.environ.get("RANK", "0") != "0":
        return
    click.echo(
        f"{done.path}: {done.parameters:,} parameters, test perplexity {done.test.perplexity:.2f} "
        f"on {done.test.tokens:,} tokens, trained for {done.seconds:.0f} s"
    )
