"""Lower bounds on the error of a softmax of a given embedding size (Ganea et al. 2019, theorem 1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.checks import check_positive, typed
from ..errors import ConfigurationError
from ..spectrum.effective_ranks import descending


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
    return math.hypot(*descending(sigma)[d + (not centered) :])  # whose squares may overflow


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
