"""Ways of scoring a text beside a run's plain perplexity: learning on the way, and by any source's rows."""

from .cache import Cache, cache_evaluate, tune_cache
from .dynamic import DYNAMIC_DEFAULTS, Dynamic, dynamic_evaluate
from .of_run import cached_scores, dynamic_scores
from .source import evaluate_source
from .statistics import GradientStatistics, gradient_statistics

__all__ = [
    "DYNAMIC_DEFAULTS",
    "Cache",
    "Dynamic",
    "GradientStatistics",
    "cache_evaluate",
    "cached_scores",
    "dynamic_evaluate",
    "dynamic_scores",
    "evaluate_source",
    "gradient_statistics",
    "tune_cache",
]
