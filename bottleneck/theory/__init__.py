"""The papers' theorems as functions: what an output layer can express, decided and not estimated."""

from .approximation import BestLogits, best_logits, frobenius_lower_bound, recommended_embedding_size
from .context_vectors import Attainable, attainable
from .exact import exact_rank
from .expressible import MinimalRank, Verdict, expressible, is_member, minimal_rank, row_shift
from .maximum_entropy import BestContextVector, best_context_vector

__all__ = [
    "Attainable",
    "BestContextVector",
    "BestLogits",
    "MinimalRank",
    "Verdict",
    "attainable",
    "best_context_vector",
    "best_logits",
    "exact_rank",
    "expressible",
    "frobenius_lower_bound",
    "is_member",
    "minimal_rank",
    "recommended_embedding_size",
    "row_shift",
]
