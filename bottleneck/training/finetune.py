"""The last stage of AWD-LSTM: averaged steps from the best weights until validation no longer improves."""

from __future__ import annotations

from pathlib import Path

from ..checkpoint import check_hashes, read_config
from .config import RunConfig, override
from .fit import configuration_of


def finetuning(run: str | Path) -> RunConfig:
    """Return the configuration that continues a finished run: its own, its weights averaged from the first step on.

    The optimizer is the run's own: SGD in the papers' models, so that this is their ASGD.

    It stops by the same criterion that starts NT-ASGD (Merity et al. 2018, §4.2), with the run's own interval.

    Args:
        run: folder of the finished run.

    Raises:
        RunError: there is no run, or it is unfinished or damaged.
    """
    saved = read_config(Path(run))
    check_hashes(Path(run))
    config = configuration_of(saved)
    interval = config.training.averaging.interval
    return override(
        config,
        [
            f"initial={Path(run).resolve()}",
            'training.averaging.start="epoch"',
            "training.averaging.epoch=0",
            f"training.stop_interval={interval}",
            'training.optimizer.schedule="constant"',
            "training.optimizer.warmup_steps=0",
        ],
    )
