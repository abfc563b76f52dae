"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from .config import OptimizerConfig


def build(config: OptimizerConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer; weight decay acts on matrices, not on biases or pointwise functions."""
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=config.learning_rate)
    return torch.optim.SGD(groups, lr=config.learning_rate)


def learning_rate(config: OptimizerConfig, *, step: int, steps: int) -> float:
    """Return the learning rate of ``step`` (from 0) out of ``steps``."""
    warmup = min(config.warmup_steps, steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - warmup) / max(1, steps - warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
