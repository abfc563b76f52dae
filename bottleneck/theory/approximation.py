"""Lower bounds on the error of a softmax of a given embedding size (Ganea et al. 2019, theorem 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.checks import check_positive, typed
from ..errors import ConfigurationError
from ..spectrum.measures import descending
from .inputs import Floats, largest_singular, real_matrix


@dataclass(frozen=True, eq=False)
class BestLogits:
    """The logits of rank d whose row-centred log-probabilities are nearest."""

    H: Floats
    """(T, d)."""
    W: Floats
    """(M, d)."""
    error: float
    """Frobenius norm of the row-centred difference, the least of all H and W of this size."""
    log_prob_error: float
    """‖log P − log softmax(H Wᵀ)‖_F, in nats; for every H and W it is at least `error`."""


@typed
def frobenius_lower_bound(sigma: Any, d: int, *, centered: bool = False) -> float:
    r"""Return a lower bound on ‖log P − log Q‖_F for every linear softmax Q of embedding size d without bias.

    log Q = H Wᵀ − log Z 1ᵀ has rank at most d + 1, so by Eckart, Young and Mirsky

    .. math:: \|A_P - A_Q\|_F ≥ \sqrt{σ_{d+2}^2 + \dots + σ_M^2}

    (Ganea et al. 2019, theorem 1, which prints the square of the left side and the root of the right one). Row-centred
    matrices have rank at most d, and centring a row never increases its norm: with their singular values the sum begins
    at σ_{d+1}, and the bound is never smaller.

    Args:
        sigma: singular values of log P, in any order; missing ones count as zero.
        d: embedding size.
        centered: whether the singular values are those of the row-centred log P.

    Returns:
        The bound, in nats.

    Example:
        >>> frobenius_lower_bound([9.0, 5.0, 4.0, 3.0], 1)
        5.0
    """
    check_positive(d=d)
    return float(np.linalg.norm(descending(sigma)[d + (not centered) :]))


@typed
def best_logits(A: Any, d: int) -> BestLogits:
    r"""Return the logits of embedding size d that are nearest to log P in the row-centred Frobenius norm.

    They are the truncated singular value decomposition of :math:`A (I - 11^⊤/M)` (Eckart and Young). The difference is
    row-centred because a constant added to a row of logits does not change P (Yang et al. 2018, property 1).

    Args:
        A: log P, (T, M), nats.
        d: embedding size; beyond min(T, M) columns are zero.

    Example:
        >>> best_logits(np.log([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4]]), 1).error < 1e-12
        True
    """
    check_positive(d=d)
    A = real_matrix(A, "A")
    H, W, values = largest_singular(A - A.mean(1, keepdims=True), d)
    logits = H @ W.T
    shift = np.logaddexp.reduce(logits, 1) - np.logaddexp.reduce(A, 1)
    return BestLogits(H, W, float(np.linalg.norm(values[d:])), float(np.linalg.norm(A - logits + shift[:, None])))


@typed
def recommended_embedding_size(sigma: Any, error: float, *, centered: bool = False) -> int:
    """Return the smallest embedding size whose `frobenius_lower_bound` is at most a given error.

    Args:
        sigma: singular values of log P, in any order.
        error: ‖log P − log Q‖_F in nats, at least 0.
        centered: whether they are those of the row-centred log P.

    Example:
        >>> recommended_embedding_size([9.0, 5.0, 4.0, 3.0], 3.5)
        2
    """
    if not 0 <= error < np.inf:
        raise ConfigurationError(f"the error must be a finite number of nats of at least 0, not {error}")
    values = descending(sigma)
    return next(d for d in range(1, len(values) + 2) if np.linalg.norm(values[d + (not centered) :]) <= error)
