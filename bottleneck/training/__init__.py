"""Training: configuration, presets, and a loop that can be killed at any instant."""

from .config import OptimizerConfig, RunConfig, TrainingConfig, override, parse, read
from .evaluate import Evaluation, evaluate
from .fit import FitResult, fit
from .presets import PRESETS, Preset

__all__ = [
    "PRESETS",
    "Evaluation",
    "FitResult",
    "OptimizerConfig",
    "Preset",
    "RunConfig",
    "TrainingConfig",
    "evaluate",
    "fit",
    "override",
    "parse",
    "read",
]
