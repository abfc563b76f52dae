"""Training: configuration, presets, and a training loop that resumes after any interruption."""

from .config import (
    AveragingConfig,
    OptimizerConfig,
    RunConfig,
    TrainingConfig,
    as_toml,
    complete,
    configuration_of,
    finetuning,
    override,
    parse,
    read,
)
from .cost import TrainingCost, training_cost
from .evaluate import evaluate
from .fit import FitResult, fit, is_begun
from .presets import PRESETS, Preset

__all__ = [
    "PRESETS", "AveragingConfig", "FitResult", "OptimizerConfig", "Preset", "RunConfig", "TrainingConfig",
    "TrainingCost", "as_toml", "complete", "configuration_of", "evaluate", "finetuning", "fit", "is_begun", "override",
    "parse", "read", "training_cost",
]  # fmt: skip
