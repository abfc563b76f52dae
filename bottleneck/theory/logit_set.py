r"""The set of logits with given probabilities, and the embedding size it needs (Yang et al. 2018, §2.1, appendix A).

For A = log P, (T, M), the set of all logits with these probabilities is

.. math:: F(A) = \{A + λ 1^⊤ : λ ∈ R^T\}

(property 1: its members are exactly the A' with softmax(A') = P). Their ranks differ by at most one (property 2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import qr

from ..core.checks import check_positive, typed
from ..errors import MatrixError
from ..spectrum.lapack import svd
from ..spectrum.rules import entry_roundoff, tolerance
from .inputs import EPS, Floats, real_matrix, real_vector, roundoff, scaled

SVD_ERROR = 4 * EPS
"""Largest error of a computed singular value over σ₁ of a small matrix: 1.6 ε in 20,000 matrices of up to 6 × 6. In a
matrix of 64 rows and columns together Press's tolerance reaches it."""


@dataclass(frozen=True, eq=False)
class MinimalRank:
    """The member of F(A) with the smallest rank."""

    rank: int
    """min of rank(A') over F(A)."""
    shifts: Floats
    """λ, (T,), with which `row_shift` gives that member: minus the mean of each row."""
    raw_rank: int
    """rank(A), which is larger by at most one (property 2)."""
    tolerance: float
    """Singular values of the shifted matrix up to this value count as zero."""


@dataclass(frozen=True, eq=False)
class Expressibility:
    """Whether a softmax of embedding size d can have given probabilities in every context."""

    expressible: bool
    least_dimension: int
    """The smallest embedding size that can: min of rank(A') over F(A)."""
    H: Floats | None
    """(T, d), with softmax(H Wᵀ) = P up to roundoff; ``None`` if P is not expressible."""
    W: Floats | None
    """(M, d)."""
    contexts: tuple[int, ...]
    """If P is not expressible: d + 1 contexts of which every H and W of this size gets at least one wrong; for given
    parameters `wrong_context` returns it."""
    least_error: float
    """Lower bound, for every H and W, on the norm of the row-centred error of log P over those contexts."""
    _centered: Floats = field(repr=False)

    def wrong_context(self, H: Any, W: Any) -> int:
        r"""Return a context that these parameters get wrong, one of `contexts`.

        The smallest singular value σ of the row-centred log-probabilities of the d + 1 contexts is positive, that of
        any H Wᵀ is 0. So by Weyl the largest row of their difference has a norm of at least :math:`σ / \sqrt{d + 1}`.

        Args:
            H: (T, d) context vectors.
            W: (M, d) embeddings.

        Raises:
            MatrixError: if P is expressible, or for other shapes.
        """
        if self.expressible:
            raise MatrixError(f"an embedding size of {self.least_dimension} expresses P, so every context can be right")
        H, W = real_matrix(H, "H"), real_matrix(W, "W")
        if H.shape[1] != len(self.contexts) - 1 or (len(H), len(W)) != self._centered.shape or W.shape[1] != H.shape[1]:
            raise MatrixError(
                f"the verdict is on H and W with {self._centered.shape[0]} and {self._centered.shape[1]} rows of "
                f"{len(self.contexts) - 1} numbers, not on shapes {H.shape} and {W.shape}"
            )
        rows = list(self.contexts)
        errors = np.linalg.norm(scaled(self._centered[rows] - H[rows] @ (W - W.mean(0)).T)[0], axis=1)
        return self.contexts[int(errors.argmax())]


def row_shift(A: Any, shifts: Any) -> Floats:
    """Return A + λ 1ᵀ, a member of F(A) (Yang et al. 2018, §2.1).

    Args:
        A: (T, M) log-probabilities or logits, nats.
        shifts: λ, (T,).

    Example:
        >>> row_shift([[0.0, 1.0]], [2.0])
        array([[2., 3.]])
    """
    A = real_matrix(A, "A")
    return A + real_vector(shifts, len(A), "the shifts")[:, None]


@typed
def is_member(B: Any, A: Any, *, eps: str | float | None = None) -> bool:
    r"""Return whether B is in F(A): whether softmax(B) = softmax(A) (Yang et al. 2018, property 1).

    B is in F(A) exactly if the rows of B − A are constant, here up to :math:`4 ε \max_j (|A_{ij}| + |B_{ij}|)`.

    Args:
        B: (T, M) logits.
        A: (T, M) logits.
        eps: relative roundoff of the entries, a number or the name of a type; by default that of the coarser type.

    Example:
        >>> is_member([[2.0, 3.0]], [[0.0, 1.0]]), is_member([[2.0, 3.5]], [[0.0, 1.0]])
        (True, False)
    """
    eps = roundoff(eps, A, B)
    A, B = real_matrix(A, "A"), real_matrix(B, "B")
    if A.shape != B.shape:
        raise MatrixError(f"A of shape {A.shape} and B of shape {B.shape} cannot be compared: give equal shapes")
    A, B = scaled(np.stack([A, B]))[0]
    size = (abs(A) + abs(B)).max(1, keepdims=True)
    return bool((np.ptp(B - A, axis=1, keepdims=True) <= 4 * eps * size).all())


@typed
def minimal_rank(A: Any, *, eps: str | float | None = None) -> MinimalRank:
    r"""Return the smallest rank of all logits that have the probabilities of A, and the shift that attains it.

    With :math:`C = I - 11^⊤/M` every member A' of F(A) has A'C = AC, so rank(A') ≥ rank(AC), and AC is itself a
    member: the smallest rank is that of A with each row's mean subtracted (proposition 1's min of rank(A') over F(A)).

    Args:
        A: (T, M) log-probabilities or logits, nats.
        eps: relative roundoff of the entries, a number or the name of a type; by default that of A's type. Singular
            values up to Press's tolerance, up to ½ ε ‖A‖_F, and up to the error of their computation (`SVD_ERROR` σ₁)
            are zero.

    Example:
        >>> found = minimal_rank([[5.0, 5.0, 5.0], [1.0, 2.0, 3.0]])
        >>> found.rank, found.raw_rank
        (1, 2)
    """
    eps = roundoff(eps, A)
    A, exponent = scaled(real_matrix(A, "A"))
    means = A.mean(1)
    means += (A - means[:, None]).mean(1)  # the roundoff of the first mean
    raw, centered = (np.linalg.svd(each, compute_uv=False) for each in (A, A - means[:, None]))
    # If all rows are constant, the centred matrix holds only the roundoff of their means.
    least = entry_roundoff(float(np.linalg.norm(A)), eps)
    raw_limit, limit = (
        max(tolerance(values[0], A.shape, eps), least, SVD_ERROR * values[0]) for values in (raw, centered)
    )
    return MinimalRank(
        int((centered > limit).sum()),
        np.ldexp(-means, exponent),
        int((raw > raw_limit).sum()),
        float(np.ldexp(limit, exponent)),
    )


@typed
def expressible(A: Any, d: int, *, eps: str | float | None = None) -> Expressibility:
    """Decide whether a softmax without bias and with embedding size d can have these probabilities in every context.

    H Wᵀ gives P exactly if it lies in F(A) (lemma 1). Such an H (T, d) and W (M, d) exist exactly if d ≥ min rank over
    F(A) (proposition 1), and do not if d < rank(A) − 1 (corollary 1). As in the proposition, H and W are arbitrary.

    Args:
        A: log P, (T, M), nats, or any member of F(A); P > 0 everywhere (Yang et al. 2018, §2).
        d: embedding size; M − 1 is always enough.
        eps: relative roundoff of the entries, as for `minimal_rank`.

    Returns:
        The verdict with factors H and W; or, if P is not expressible, with the least sufficient size and d + 1 contexts
        of which one must be wrong. No context alone must be wrong: each can be right with d = 1.

    Example:
        >>> import numpy as np
        >>> verdict = expressible(np.log(np.eye(4) + 0.1), 2)
        >>> verdict.expressible, verdict.least_dimension, len(verdict.contexts)
        (False, 3, 3)
    """
    check_positive(d=d)
    least = minimal_rank(A, eps=eps)
    centered = row_shift(A, least.shifts)
    if d >= least.rank:
        U, values, V = svd(centered)
        size = least.rank
        H, W = np.zeros((len(U), d)), np.zeros((V.shape[1], d))
        H[:, :size], W[:, :size] = U[:, :size] * values[:size], V[:size].T
        return Expressibility(True, least.rank, H, W, (), 0.0, centered)
    # The rows that a pivoted QR takes first are independent.
    pivots = qr(centered.T, mode="r", pivoting=True)[1][: d + 1]
    contexts = tuple(sorted(int(row) for row in pivots))
    error = float(np.linalg.svd(centered[list(contexts)], compute_uv=False)[-1])
    return Expressibility(False, least.rank, None, None, contexts, error, centered)
