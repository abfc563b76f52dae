"""From a model or a file to the matrix of log-probabilities, and the measurements on it."""

from .argmaxable import argmaxable, output_embeddings
from .base import Block, Bound, FactorRows, Source
from .comparison import Comparison, compare
from .cost import CostEstimate, estimate_cost
from .head_gradient import GradientReport, gradient
from .hidden_size import HiddenSizeEstimate, estimate_hidden_size, logits_from_top_k
from .measure import kld, rank
from .sources import Adapter, HuggingFaceOptions, open_source
from .store import dump

__all__ = [
    "Adapter",
    "Block",
    "Bound",
    "Comparison",
    "CostEstimate",
    "FactorRows",
    "GradientReport",
    "HiddenSizeEstimate",
    "HuggingFaceOptions",
    "Source",
    "argmaxable",
    "compare",
    "dump",
    "estimate_cost",
    "estimate_hidden_size",
    "gradient",
    "kld",
    "logits_from_top_k",
    "open_source",
    "output_embeddings",
    "rank",
]
