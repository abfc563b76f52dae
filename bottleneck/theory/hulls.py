r"""Two sets of tokens: a context vector that puts one above the other, or a certificate that their convex hulls meet.

With :math:`a_s = (w_0 - w_s, b_0 - b_s)`, 0 one of the tokens above, a context vector and a threshold c ≥ 0 with
:math:`a_s·(h, 1) > c` for all s below and :math:`-a_g·(h, 1) ≥ -c` for all g above exist, unless there are
:math:`α, β ≥ 0`, each of sum 1, with :math:`\sum_g α_g w_g = \sum_s β_s w_s` and
:math:`\sum_g α_g b_g ≤ \sum_s β_s b_s` (Motzkin). For one token above it is that the token lies in the hull of the
others. The program begins with few of the tokens below and adds violated ones in rounds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .argmax_search import Ids, Layer
from .inputs import Floats
from .linear_program import minimize

ROUNDS = 60
ADDED = 64
"""Tokens below that enter the program in one round."""
FIRST = 128
"""Tokens below in the first round."""
CLOSE = 1e-7
"""Largest margin of the normalized program at which its multipliers are tried as a certificate."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """Proof that no context vector puts tokens above others: a mean of the others' logits is never below one of theirs.

    For a token that is never the argmax, the token is the one above.
    """

    tokens: Ids
    """The other tokens; none if the token's bias is −∞."""
    weights: Floats
    """β, positive, of sum 1."""
    residual: float
    """‖Σ β w − Σ α w‖: the tokens' logits exceed the others' largest by at most residual · ‖h‖ + bias_deficit."""
    bias_deficit: float
    """max(0, Σ α b − Σ β b)."""
    above: Floats = field(default_factory=lambda: np.ones(1))
    """α, of sum 1, of all tokens above."""


Decision = Certificate | Floats | None
"""A certificate, a context vector, or nothing: unknown."""


def decide(layer: Layer, above: Ids, below: Ids, rivals: Ids, *, seconds: float | None = None) -> Decision:
    """Return a context vector that puts tokens above others, a certificate that there is none, or ``None`` if unknown.

    Args:
        layer: the output layer.
        above: ids of one or more tokens.
        below: ids of the others.
        rivals: ids of those of them that enter the program first, beside the nearest.
        seconds: time limit.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    tokens = np.concatenate([below, above[1:]])
    is_below = np.arange(len(tokens)) < len(below)
    A = np.hstack([layer.W[above[0]] - layer.W[tokens], (layer.b[above[0]] - layer.b[tokens])[:, None]])
    A[len(below) :] *= -1
    lengths = np.sqrt(np.einsum("ij,ij->i", A, A))
    level = np.flatnonzero((lengths == 0) & is_below)
    if level.size:
        return _certificate(layer, above, tokens, is_below, level[:1], np.ones(1))
    if not below.size:
        return np.zeros(layer.dimension)
    scale = lengths.max()
    lengths[lengths == 0] = scale
    A = A[:, : layer.dimension + int(layer.has_bias)] / lengths[:, None]
    bounds: list[Any] = [(-1, 1)] * layer.dimension + [(0, 1)] * int(layer.has_bias)
    if len(above) > 1:  # the threshold, which is 0 for one token
        A = np.column_stack([A, np.where(is_below, -scale, scale) / lengths])
        bounds.append((0, None))
    objective, bounds = np.append(np.zeros(A.shape[1]), -1.0), [*bounds, (None, 1)]
    near = np.argsort(lengths[is_below])[:FIRST]
    active = np.unique(np.concatenate([near, np.flatnonzero(np.isin(tokens, rivals) | ~is_below)]))
    for _ in range(ROUNDS):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return None
        optimum = minimize(
            objective,
            rows=np.column_stack([-A[active], is_below[active]]),
            limits=np.zeros(len(active)),
            bounds=bounds,
            seconds=left,
        )
        if optimum is None:
            return None
        x = optimum.x[:-1]
        share = float(x[layer.dimension]) if layer.has_bias else 0.0
        h = layer.separating(above, below, x[: layer.dimension], share)
        if h is not None:
            return h
        if -optimum.value <= CLOSE:
            weights = optimum.multipliers / lengths[active]
            used = weights > 1e-12 * weights.max()
            certificate = _certificate(layer, above, tokens, is_below, active[used], weights[used])
            if certificate is not None:
                return certificate
        margins = A @ x
        margins[active] = np.inf
        worst = np.argsort(margins)[:ADDED]
        worst = worst[margins[worst] <= max(-optimum.value, 0.0)]
        if not worst.size:
            return None
        active = np.concatenate([active, worst])
    return None


def _certificate(
    layer: Layer, above: Ids, tokens: Ids, is_below: NDArray[np.bool_], places: Ids, weights: Floats
) -> Certificate | None:
    """Return the certificate with these weights, after least squares has reduced their roundoff, or ``None``."""
    used, other = tokens[places], is_below[places]
    sign = np.where(other, 1.0, -1.0)
    differences, biases = (
        sign[:, None] * (layer.W[used] - layer.W[above[0]]),
        sign * (layer.b[used] - layer.b[above[0]]),
    )
    weights = weights / weights[other].sum()
    for rows in ([differences.T], [differences.T, biases[None]]):
        system = np.vstack([*rows, (layer.weight_resolution or 1.0) * other[None]])
        scale = np.maximum(abs(system).max(1, keepdims=True), np.finfo(np.float64).tiny)
        target = np.zeros(len(system))
        target[-1] = (layer.weight_resolution or 1.0) / scale[-1, 0]
        exact = weights
        for _ in range(2):
            exact = exact + np.linalg.lstsq(system / scale, target - (system / scale) @ exact)[0]
        exact = np.maximum(exact, 0)
        exact /= exact[other].sum()
        residual = float(np.linalg.norm(exact @ differences))
        deficit = max(0.0, -float(exact @ biases))
        if residual <= layer.weight_resolution and deficit <= layer.bias_resolution:
            over = np.zeros(len(above))
            over[places[~other] - len(tokens)] = exact[~other]
            over[0] = max(0.0, 1.0 - over[1:].sum())
            positive = other & (exact > 0)
            return Certificate(used[positive], exact[positive], residual, deficit, over)
    return None
