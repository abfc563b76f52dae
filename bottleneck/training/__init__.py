"""Training: configuration, presets, and a training loop that resumes after any interruption."""

from .config import AveragingConfig, OptimizerConfig, RunConfig, TrainingConfig, override, parse, read
from .evaluate import Evaluation, evaluate
from .finetune import finetuning
from .fit import FitResult, fit, is_begun
from .presets import PRESETS, Preset

__all__ = [
    "PRESETS",
    "AveragingConfig",
    "Evaluation",
    "FitResult",
    "OptimizerConfig",
    "Preset",
    "RunConfig",
    "TrainingConfig",
    "evaluate",
    "finetuning",
    "fit",
    "is_begun",
    "override",
    "parse",
    "read",
]
