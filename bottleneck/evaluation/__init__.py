"""Perplexity of any source, of a run also by dynamic evaluation or with a cache, and BLEU of its responses."""

from ..training.evaluate import Perplexity
from .beam import Beam, Response, beam_search
from .cache import Cache, cache_evaluate, tune_cache
from .dialog import Bleu, DialogScores, bleu, score_dialog
from .dynamic import Dynamic, dynamic_evaluate, gradient_statistics, published_dynamic
from .scoring import perplexity

__all__ = [
    "Beam", "Bleu", "Cache", "DialogScores", "Dynamic", "Perplexity", "Response", "beam_search", "bleu",
    "cache_evaluate", "dynamic_evaluate", "gradient_statistics", "perplexity", "published_dynamic",
    "score_dialog", "tune_cache",
]  # fmt: skip
