"""Optimizers, learning-rate schedules, and when averaging of the weights starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from ..heads import ParameterSettings
from .config import AveragingConfig, OptimizerConfig, RunConfig


def build(
    config: OptimizerConfig, parameters: Iterable[nn.Parameter], special: Iterable[ParameterSettings] = ()
) -> torch.optim.Optimizer:
    """Return the optimizer of a model's parameters; ``special`` are parameters with settings of their own.

    Weight decay acts on matrices, optionally on biases, and never on pointwise functions.
    """
    settings = {id(parameter): one for one in special for parameter in one.parameters}
    kinds: dict[tuple[float, bool], list[nn.Parameter]] = {(1.0, True): [], (1.0, False): []}
    for parameter in parameters:
        chosen = settings.get(id(parameter), ParameterSettings((parameter,)))
        decays = chosen.weight_decay and (config.decayed == "all" or parameter.ndim >= 2)
        kinds.setdefault((chosen.learning_rate_factor, decays), []).append(parameter)
    groups = [
        {"params": members, "weight_decay": config.weight_decay * decays, "learning_rate_factor": factor}
        for (factor, decays), members in kinds.items()
        if members
    ]
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.SGD
    return kind(groups, lr=config.learning_rate)


def copies_of(config: RunConfig, device: str) -> int:
    """Return how many tensors of the weights' size training keeps in memory: weights, gradients, moments, averages."""
    training = config.training
    moments = 2 if training.optimizer.name == "adamw" else 0
    return 2 + moments + (training.averaging.start != "never") if device == "cpu" else 1


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter group to ``rate`` times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["learning_rate_factor"]


def learning_rate(config: OptimizerConfig, *, step: int, steps: int) -> float:
    """Return the learning rate of ``step`` (from 0) out of ``steps``."""
    warmup = min(config.warmup_steps, steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - warmup) / max(1, steps - warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


def is_non_monotone(losses: Sequence[float], interval: int) -> bool:
    """Return whether the last validation loss is above the least of all but the ``interval`` before it.

    This is the trigger of NT-ASGD (Merity et al. 2018, algorithm 1); ``interval`` is its n.

    Example:
        >>> is_non_monotone([5.0, 4.0, 4.2, 4.1], 2), is_non_monotone([5.0, 4.0, 4.2, 4.1], 1)
        (False, True)
    """
    earlier = losses[: max(0, len(losses) - 1 - interval)]
    return bool(earlier) and losses[-1] > min(earlier)


def starts_averaging(config: AveragingConfig, losses: Sequence[float], *, epochs: int) -> bool:
    """Return whether averaging should start now, after ``epochs`` epochs and the validation ``losses``."""
    if config.start == "epoch":
        return epochs >= config.epoch
    is_late = config.latest is not None and epochs >= config.latest
    return config.start == "non-monotone" and (is_late or is_non_monotone(losses, config.interval))
