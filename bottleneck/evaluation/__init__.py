"""Ways of scoring a text beside a run's plain perplexity: learning on the way, and by any source's rows."""

from .cache import Cache, cache_evaluate, tune_cache
from .dynamic import Dynamic, dynamic_evaluate
from .source import evaluate_source
from .statistics import GradientStatistics, gradient_statistics

__all__ = [
    "Cache",
    "Dynamic",
    "GradientStatistics",
    "cache_evaluate",
    "dynamic_evaluate",
    "evaluate_source",
    "gradient_statistics",
    "tune_cache",
]
