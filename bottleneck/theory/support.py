r"""Tokens with a positive true probability, proved from the model's own output (Finlayson et al. 2024).

If a context vector minimizes the cross entropy against the true distribution p*, the gradient vanishes:
:math:`W^⊤ p^* = W^⊤ \hat p`. So p* lies in a polytope of distributions R that p̂ and W determine, and a token that is
positive in all of them is in the support of p*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.checks import check_above_zero, typed
from ..spectrum.centered import orthonormal_basis
from .inputs import EPS, Floats, distributions, real_matrix
from .linear_program import minimize

NOTHING = 1e-12
"""Largest probability in a program's solution that counts as zero."""


@dataclass(frozen=True, eq=False)
class ProvedSupport:
    """The tokens of one context whose true probability is positive, each with its proof."""

    tokens: NDArray[np.int64]
    """(n,): their ids, ascending."""
    least: Floats
    """(n,): proved lower bounds on their true probabilities."""
    h: Floats
    """(n, d): the vector h of each token's proof."""
    offset: Floats
    """(n,): the number c of each proof. W h + c is at most 1 at the token and at most 0 elsewhere, and
    h·(Wᵀp̂) + c = least > 0, with roundoff subtracted."""
    unknown: NDArray[np.int64]
    """Ids of tokens whose program was stopped."""


@typed
def provably_supported(p: Any, W: Any, *, seconds: float | None = None) -> ProvedSupport:
    r"""Prove which tokens have positive true probability, given a model's distribution at its optimum.

    .. math:: \min R_i \quad \text{over} \quad R ≥ 0, \; \sum R = 1, \; W^⊤ R = W^⊤ \hat p

    Token i is proved if the minimum is positive. The program's dual is the proof: with h and c as in
    `ProvedSupport`, :math:`R_i ≥ \sum_j R_j (w_j·h + c) = h·(W^⊤\hat p) + c` for every R of the polytope. A basic
    solution has at most d + 1 positive entries, so at most d + 1 tokens are proved, and each solution excludes all
    tokens that are zero in it.

    The result assumes that the context vector is exactly optimal, which training only approximates. A bias makes no
    difference, because the gradient in h does not contain it. Mixtures of softmaxes have another gradient.

    Args:
        p: (M,), p̂, the model's probabilities.
        W: (M, d), its output embeddings.
        seconds: time limit of each program.

    Example:
        >>> W = np.array([[0.0], [1.0], [2.0]])
        >>> provably_supported([0.1, 0.2, 0.7], W).tokens  # a mean of 1.6 needs the last; the others can do without
        array([2])
    """
    check_above_zero(seconds=seconds)
    W = real_matrix(W, "W")
    (p,) = distributions(p, len(W))
    means, scale = W.mean(0), np.sqrt(len(W))
    X, back = (scale * each.numpy() for each in orthonormal_basis(torch.from_numpy(W), least=max(W.shape) * EPS))
    equal, equal_to = np.vstack([X.T, np.ones(len(W))]), np.append(p @ X, 1.0)
    candidates = np.ones(len(W), dtype=np.bool_)
    proofs: dict[int, tuple[float, Floats, float]] = {}
    unknown: list[int] = []
    # The likeliest tokens come first; tokens that are zero in a solution need no program.
    objective, token = p - p.max(), -1
    while True:
        optimum = minimize(objective, equal_rows=equal, equal_to=equal_to, bounds=(0, None), seconds=seconds)
        if optimum is not None:
            candidates &= optimum.x > NOTHING
        if token >= 0:
            candidates[token] = False
            if optimum is None:
                unknown.append(token)
            else:
                h = back @ optimum.equal_multipliers[:-1]
                proof = _proof(p, W, means, token, h, float(optimum.equal_multipliers[-1]))
                proofs |= {} if proof is None else {token: proof}
        left = np.flatnonzero(candidates)
        if not left.size:
            break
        token = int(left[p[left].argmax()])
        objective = np.zeros(len(W))
        objective[token] = 1.0
    tokens = sorted(proofs)
    least, h, offset = zip(*(proofs[token] for token in tokens), strict=True) if tokens else ((), (), ())
    return ProvedSupport(
        np.array(tokens, dtype=np.int64),
        np.array(least),
        np.array(h).reshape(-1, W.shape[1]),
        np.array(offset),
        np.array(sorted(unknown), dtype=np.int64),
    )


def _proof(
    p: Floats, W: Floats, means: Floats, token: int, h: Floats, offset: float
) -> tuple[float, Floats, float] | None:
    """Return the proved minimum, h and c, from multipliers with roundoff; ``None`` if they prove nothing."""
    heights = (W - means) @ h
    allowed = np.zeros(len(W))
    allowed[token] = 1.0
    # The error of a sum of d products is at most (d + 2) ε/2 times the norms of its factors; likewise over tokens.
    sizes = np.linalg.norm(W, axis=1).max() * np.linalg.norm(h) + abs(offset)
    roundoff = (len(h) + 2) * EPS * sizes
    offset -= max(0.0, float((heights + offset - allowed).max()) + roundoff)
    least = float(p @ heights) + offset - (len(p) + 2) * EPS * float(p @ abs(heights)) - roundoff
    return (least, h, offset - float(means @ h)) if least > 0 else None
