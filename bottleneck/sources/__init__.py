"""Sources: matrices in blocks of rows, with their provenance, and how they are opened."""

from ..language_models.layer import OutputWeights
from ..language_models.source import UNKNOWN, Block, Cost, FactorRows, RightFactor, Source
from .arrays import from_blocks, open_matrix
from .extended import ExtendedSource, extended_logits
from .function import Adapter, from_function
from .kinds import KINDS, find, is_several, labelled, open_source, open_sources
from .matrix import MatrixSource
from .ngram import NGramSource
from .opening import Kind
from .output_weights import output_weights
from .partial import KldSource, Part, PartialSource
from .top_k import TopK
from .views import Difference, FiniteColumns

__all__ = [
    "KINDS", "UNKNOWN", "Adapter", "Block", "Cost", "Difference", "ExtendedSource", "FactorRows", "FiniteColumns",
    "Kind", "KldSource", "MatrixSource", "NGramSource", "OutputWeights", "Part", "PartialSource", "RightFactor",
    "Source", "TopK", "extended_logits", "find", "from_blocks", "from_function", "is_several",
    "labelled", "open_matrix", "open_source", "open_sources", "output_weights",
]  # fmt: skip
