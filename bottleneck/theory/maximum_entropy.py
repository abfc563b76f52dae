r"""The best context vector for fixed embeddings, and the maximum entropy that it equals (Ganea et al. 2019, theorem 2).

.. math:: \min_h H(P, Q_h) = \max \{H(R) : R ≥ 0, \sum R = 1, E_R[w] = E_P[w]\}

The minimum is attained exactly where the mean embedding E_P[w] lies in the relative interior of the polytope that
the embeddings span. Otherwise it lies on a face. Along a direction g with g·w largest on that face, the cross entropy
decreases towards the minimum over the face's tokens alone, without reaching it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from ..core.checks import check_above_zero, typed
from ..spectrum.lapack import svd
from .context_vectors import attainable
from .inputs import EPS, Floats, distributions, real_matrix, real_vector
from .linear_program import minimize


@dataclass(frozen=True, eq=False)
class BestContextVector:
    """The least cross entropy over all context vectors, for each of n distributions; in nats."""

    h: Floats
    """(n, d): the minimizers, of least norm; where no minimizer exists, the finite part of h + s·recession."""
    value: Floats
    """(n,): the least cross entropy H(P, Q_h), or its infimum where no minimizer exists."""
    dual: Floats
    """(n,): a lower bound on ``value``, from distributions R with the same mean embedding: H(R) without a bias."""
    gap: Floats
    """(n,): value − dual."""
    attained: tuple[bool | None, ...]
    """Whether a context vector attains ``value``; ``None`` where the linear program that decides it was stopped."""
    recession: Floats
    """(n, d): g with H(P, Q_{h + s·g}) → value as s → ∞; zero where the minimum is attained. For tokens off the face
    g·w is smaller by 1 or more."""


@typed
def best_context_vector(
    P: Any,
    W: Any,
    *,
    bias: Any = None,
    tolerance: float = 1e-10,
    max_steps: int = 200,
    seconds: float | None = None,
) -> BestContextVector:
    r"""Minimize the cross entropy H(P, Q_h), Q_h = softmax(W h + b), over h (Ganea et al. 2019, theorem 2).

    Damped Newton with line search, until the duality gap closes (`context_vectors`). Corollary 2.1: one more
    column of W never raises the value. Corollary 2.2: W of rank M, or already centred rank M − 1, reaches H(P).

    If P has no zeros, its mean embedding is an interior point and the minimum is attained. For a P with zeros a linear
    program over the directions in which P's tokens have equal logits finds g, if there is one, and the smallest face.

    Args:
        P: (n, M) probabilities, or one row (M,).
        W: (M, d) embeddings.
        bias: (M,), b; the duality holds relative to it.
        tolerance: largest gap, nats.
        max_steps: largest number of Newton steps; a result that needs more has a larger gap.
        seconds: time limit of each linear program.

    Example:
        >>> W = np.array([[0.0], [1.0], [2.0]])
        >>> inside = best_context_vector([0.25, 0.5, 0.25], W)
        >>> inside.attained, round(float(inside.value[0]), 6)  # log 3: Q is uniform
        ((True,), 1.098612)
        >>> edge = best_context_vector([0.0, 0.0, 1.0], W)
        >>> edge.attained, float(edge.value[0]), edge.recession
        ((False,), 0.0, array([[1.]]))
    """
    W = real_matrix(W, "W")
    P = distributions(P, len(W))
    b = np.zeros(len(W)) if bias is None else real_vector(bias, len(W), "the bias")
    check_above_zero(tolerance=tolerance, seconds=seconds)
    with np.errstate(divide="ignore"):
        log_p = np.log(P)
    h, recession = np.zeros((2, len(P), W.shape[1]))
    divergence, gap = np.zeros((2, len(P)))
    attained: list[bool | None] = []
    faces: dict[bytes, list[int]] = {}
    for row, support in enumerate(P > 0):
        face, recession[row] = smallest_face(support, W, seconds=seconds)
        attained.append(None if face is None else bool(face.all()))
        faces.setdefault((np.ones_like(support) if face is None else face).tobytes(), []).append(row)
    for key, rows in faces.items():
        tokens = np.frombuffer(key, dtype=np.bool_)
        targets, embeddings = log_p[rows][:, tokens], W[tokens]
        best = attainable(targets, embeddings, bias=b[tokens], tolerance=tolerance, max_steps=max_steps)
        h[rows], divergence[rows], gap[rows] = (each.numpy() for each in (best.contexts, best.kl, best.gap))
    entropy = -(P * np.where(P > 0, log_p, 0.0)).sum(1)
    value = divergence + entropy
    return BestContextVector(h, value, value - gap, gap, tuple(attained), recession)


def smallest_face(
    support: NDArray[np.bool_], W: Floats, *, seconds: float | None = None
) -> tuple[NDArray[np.bool_] | None, Floats]:
    r"""Return the tokens on the smallest face of the embeddings' convex hull that holds some tokens, and a normal g.

    .. math:: \max \sum_j y_j, \quad 0 ≤ y_j ≤ 1, \quad y_j ≤ (w_s - w_j)·g, \quad (w_s - w_{s'})·g = 0

    for s, s' among the given tokens. One g lies below them on every token on which any g does, since g's can be added.

    Args:
        support: (M,), mask of the tokens.
        W: (M, d).
        seconds: time limit of the linear program.

    Returns:
        Mask of the face's tokens, (M,), all of them with g = 0 if it is the whole hull, ``None`` if the program was
        stopped; and g, (d,), with g·w smaller by 1 or more off the face.
    """
    whole, level = np.ones(len(W), dtype=np.bool_), np.zeros(W.shape[1])
    first = W[support][0]
    directions = null_space(W[support] - first) if W.shape[1] else np.zeros((0, 0))
    below = (first - W[~support]) @ directions
    # Orthonormal coordinates of the remaining directions make the program independent of the scale of W.
    scale = abs(W - first).max(initial=0.0)
    _, values, V = svd(below)
    V = V[values > EPS * max(W.shape) * scale]
    if not len(V):
        return whole, level
    directions, below = directions @ V.T, below @ V.T
    size = below.shape
    optimum = minimize(
        np.concatenate([np.zeros(size[1]), -np.ones(size[0])]),
        rows=np.hstack([-below / scale, np.eye(size[0])]),
        limits=np.zeros(size[0]),
        bounds=[(None, None)] * size[1] + [(0, 1)] * size[0],
        seconds=seconds,
    )
    if optimum is None:
        return None, level
    g = directions @ optimum.x[: size[1]] / scale
    lowered = (first - W) @ g
    if lowered.max() < 0.5:
        return whole, level
    off = ~support & (lowered > 0.5)
    return ~off, g / lowered[off].min()
