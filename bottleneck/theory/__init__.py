"""The papers' theorems as functions: what an output layer can express, decided and not estimated."""

from .approximation import BestLogits, best_logits, frobenius_lower_bound, recommended_embedding_size
from .exact import exact_rank
from .expressible import MinimalRank, Verdict, expressible, is_member, minimal_rank, row_shift

__all__ = [
    "BestLogits",
    "MinimalRank",
    "Verdict",
    "best_logits",
    "exact_rank",
    "expressible",
    "frobenius_lower_bound",
    "is_member",
    "minimal_rank",
    "recommended_embedding_size",
    "row_shift",
]
