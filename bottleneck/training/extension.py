"""More epochs for a run, and whether the result is that of a run which had them from its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..checkpoint import CONFIG, read_config
from .config import RunConfig
from .configuration_file import configuration_of
from .epochs import Epochs
from .optimizer import learning_rate
from .state import saved_step

EXTENDED = "extended_from"
"""Key of ``config.json``: the earlier numbers of epochs, where the learning rates so far depend on them."""


def steps_of(data: Epochs, epochs: int) -> int:
    """Return the number of updates of a run of so many epochs, unless it stops early."""
    return sum(len(data.lengths(epoch)) for epoch in range(epochs))


def extension(config: RunConfig, folder: Path, data: Epochs) -> dict[str, Any]:
    """Return what ``config.json`` records of an extension to the epochs of ``config``; nothing where it is exact.

    It is exact if the learning rates so far are those of a run that had all the epochs from its start: those of the
    schedule ``constant`` are, unless the warm-up was longer than the run, and those of ``cosine`` are not.

    Args:
        config: the configuration with more epochs.
        folder: the run's folder, or one that is still to be made.
        data: the training split.
    """
    step = saved_step(folder)
    if not step or not (folder / CONFIG).exists():
        return {}
    saved = read_config(folder)
    before = configuration_of(saved)
    if before.training.epochs >= config.training.epochs:
        return {}
    optimizer = config.training.optimizer
    totals = [steps_of(data, each.training.epochs) for each in (before, config)]
    rates = [learning_rate(optimizer, step=step - 1, steps=steps) for steps in totals]
    return {} if rates[0] == rates[1] else {EXTENDED: [*saved.get(EXTENDED, ()), before.training.epochs]}


def warning(recorded: dict[str, Any]) -> str:
    """Return the sentence that says what an inexact `extension` means, or an empty string."""
    if not recorded:
        return ""
    epochs = recorded[EXTENDED][-1]
    return (
        f"Warning: the learning rates so far were those of a run of {epochs} epoch{'' if epochs == 1 else 's'}, so the "
        "result differs from that of a run that has all epochs from its start; a constant schedule has no such "
        "difference"
    )
