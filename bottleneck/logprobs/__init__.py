"""From a model or a file to the matrix of log-probabilities, and the measurements on it."""

from .argmaxable import argmaxable, output_embeddings
from .base import Block, Bound, FactorRows, Source
from .comparison import Comparison, compare
from .cost import CostEstimate, estimate_cost
from .extended_structure import ExtendedStructure, extended_structure
from .head_gradient import GradientReport, gradient
from .hidden_size import HiddenSizeEstimate, estimate_hidden_size, logits_from_top_k
from .measure import kld, rank
from .sources import Adapter, HuggingFaceOptions, open_source
from .sources.extended import ExtendedSource, extended_logits
from .store import dump

__all__ = [
    "Adapter",
    "Block",
    "Bound",
    "Comparison",
    "CostEstimate",
    "ExtendedSource",
    "ExtendedStructure",
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
    "extended_logits",
    "extended_structure",
    "gradient",
    "kld",
    "logits_from_top_k",
    "open_source",
    "output_embeddings",
    "rank",
]
