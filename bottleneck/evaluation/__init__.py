"""Ways of scoring a text in which a trained model learns from it on the way."""

from .cache import Cache, cache_evaluate, tune_cache
from .dynamic import Dynamic, dynamic_evaluate
from .statistics import GradientStatistics, gradient_statistics

__all__ = [
    "Cache",
    "Dynamic",
    "GradientStatistics",
    "cache_evaluate",
    "dynamic_evaluate",
    "gradient_statistics",
    "tune_cache",
]
