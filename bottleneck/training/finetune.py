"""The last stage of AWD-LSTM: averaged steps from the best weights until validation no longer improves."""

from __future__ import annotations

from pathlib import Path

from ..language_models.checkpoint import check_hashes, read_config
from .config import RunConfig
from .configuration_file import configuration_of


def finetuning(run: str | Path) -> RunConfig:
    """Return a run's configuration for finetuning: it starts from the run's weights and averages from the first step.

    The optimizer is the run's own; with SGD (stochastic gradient descent) this is averaged SGD, ASGD. Training stops at
    the criterion that starts non-monotonically triggered ASGD, NT-ASGD (Merity et al. 2018, §3), with the run's own
    interval. `RunError` for a run that is missing, unfinished or damaged.
    """
    config = configuration_of(read_config(Path(run)))
    check_hashes(Path(run))
    stage = {
        "averaging": {"start": "epoch", "epoch": 0},
        "stop_interval": config.training.averaging.interval,
        "optimizer": {"schedule": "constant", "warmup_steps": 0},
    }
    return config.replace(initial=str(Path(run).resolve()), training=stage)
