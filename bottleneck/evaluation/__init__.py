"""Perplexity of any source, of a run also by dynamic evaluation or with a cache, and BLEU of its responses."""

from ..training.evaluate import Perplexity
from .beam import Beam, Response, beam_search
from .bleu import Bleu, bleu
from .cache import Cache, cache_evaluate, tune_cache
from .dialog import DialogScores, score_dialog
from .dynamic import Dynamic, dynamic_evaluate, published_dynamic
from .scoring import cached_scores, dynamic_scores, evaluate_source, perplexity
from .statistics import GradientStatistics, gradient_statistics

__all__ = [
    "Beam",
    "Bleu",
    "Cache",
    "DialogScores",
    "Dynamic",
    "GradientStatistics",
    "Perplexity",
    "Response",
    "beam_search",
    "bleu",
    "cache_evaluate",
    "cached_scores",
    "dynamic_evaluate",
    "dynamic_scores",
    "evaluate_source",
    "gradient_statistics",
    "perplexity",
    "published_dynamic",
    "score_dialog",
    "tune_cache",
]
