"""Scores of a text beside a run's plain perplexity: dynamic evaluation, a cache, and the rows of any source."""

from .cache import Cache, cache_evaluate, tune_cache
from .dynamic import Dynamic, dynamic_evaluate, published_dynamic
from .of_run import cached_scores, dynamic_scores
from .source import evaluate_source
from .statistics import GradientStatistics, gradient_statistics

__all__ = [
    "Cache",
    "Dynamic",
    "GradientStatistics",
    "cache_evaluate",
    "cached_scores",
    "dynamic_evaluate",
    "dynamic_scores",
    "evaluate_source",
    "gradient_statistics",
    "published_dynamic",
    "tune_cache",
]
