"""Theorems on what an output layer can express, as functions whose answers are proved and not estimated.

All of them take arrays, tensors or nested lists. They raise `MatrixError` for numbers that are not real and
finite, or shapes that do not fit together, and `ConfigurationError` for an option of another type or out of its range.
"""

from .approximation import frobenius_lower_bound, recommended_embedding_size
from .argmaxable import ArgmaxReport, unargmaxable
from .context_vectors import Attainable, attainable
from .hulls import Certificate
from .logit_set import Expressibility, MinimalRank, expressible, is_member, minimal_rank, row_shift
from .maximum_entropy import BestContextVector, best_context_vector
from .multimode import Parallelograms, Separation, parallelograms, separation
from .pointwise import exact_rank, power_rank_bound, power_rank_example
from .power_law import PowerLaw, power_law
from .support import ProvedSupport, provably_supported

__all__ = [
    "ArgmaxReport", "Attainable", "BestContextVector", "Certificate", "Expressibility", "MinimalRank",
    "Parallelograms", "PowerLaw", "ProvedSupport", "Separation", "attainable", "best_context_vector", "exact_rank",
    "expressible", "frobenius_lower_bound", "is_member", "minimal_rank", "parallelograms", "power_law",
    "power_rank_bound", "power_rank_example", "provably_supported", "recommended_embedding_size", "row_shift",
    "separation", "unargmaxable",
]  # fmt: skip
