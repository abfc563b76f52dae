r"""One token's linear program: a context vector that makes it the argmax, or a certificate that there is none.

With :math:`a_j = (w_i - w_j, b_i - b_j)` a context vector with :math:`a_j·(h, 1) > 0` for all j ≠ i exists, unless
there are :math:`λ ≥ 0, \sum λ = 1` with :math:`\sum_j λ_j w_j = w_i` and :math:`\sum_j λ_j b_j ≥ b_i` (Motzkin): the
token lies in the convex hull of the others. The program begins with few other tokens and adds violated ones in rounds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from .argmax_search import Ids, Layer
from .inputs import Floats
from .linear_program import minimize

ROUNDS = 60
ADDED = 64
"""Other tokens that enter the program in one round."""
FIRST = 128
"""Other tokens in the first round."""
CLOSE = 1e-7
"""Largest margin of the normalized program at which its multipliers are tried as a certificate."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """Proof that no context vector makes a token the argmax: a mean of other tokens' logits is never below its own."""

    tokens: Ids
    """The other tokens; none if the token's bias is −∞."""
    weights: Floats
    """λ, positive, of sum 1."""
    residual: float
    """‖Σ λ w − w_i‖: the token's logit exceeds the others' largest by at most residual · ‖h‖ + bias_deficit."""
    bias_deficit: float
    """max(0, b_i − Σ λ b)."""


Decision = Certificate | Floats | None
"""A certificate, a context vector, or nothing: unknown."""


def decide(layer: Layer, token: int, rivals: Ids, *, seconds: float | None = None) -> Decision:
    """Return a context vector whose argmax is the token, a certificate that there is none, or ``None`` if unknown."""
    deadline = None if seconds is None else time.monotonic() + seconds
    W, b = layer.W[layer.allowed], layer.b[layer.allowed]
    place = int(np.searchsorted(layer.allowed, token))
    A = np.hstack([W[place] - W, (b[place] - b)[:, None]])
    lengths = np.sqrt(np.einsum("ij,ij->i", A, A))
    others = np.delete(np.arange(len(W)), place)
    level = others[lengths[others] == 0]
    if level.size:
        return _certificate(layer, token, level[:1], np.ones(1))
    if not others.size:
        return np.zeros(layer.dimension)
    lengths[place] = 1.0
    A /= lengths[:, None]
    near = others[np.argsort(lengths[others])[:FIRST]]
    active = np.union1d(np.searchsorted(layer.allowed, rivals), near)
    active = active[active != place]
    size = layer.dimension + int(layer.has_bias)
    for _ in range(ROUNDS):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return None
        optimum = minimize(
            np.append(np.zeros(size), -1.0),
            rows=np.hstack([-A[active, :size], np.ones((len(active), 1))]),
            limits=np.zeros(len(active)),
            bounds=[(-1, 1)] * layer.dimension + [(0, 1)] * int(layer.has_bias) + [(None, 1)],
            seconds=left,
        )
        if optimum is None:
            return None
        x = optimum.x[:-1]
        h = layer.separating(layer.allowed[[place]], layer.allowed[others], x[: layer.dimension], float(x[-1]))
        if h is not None:
            return h
        if -optimum.value <= CLOSE:
            weights = optimum.multipliers / lengths[active]
            used = weights > 1e-12 * weights.max()
            certificate = _certificate(layer, token, active[used], weights[used])
            if certificate is not None:
                return certificate
        margins = A[:, :size] @ x
        margins[place], margins[active] = np.inf, np.inf
        worst = np.argsort(margins)[:ADDED]
        worst = worst[margins[worst] <= max(-optimum.value, 0.0)]
        if not worst.size:
            return None
        active = np.concatenate([active, worst])
    return None


def _certificate(layer: Layer, token: int, places: Ids, weights: Floats) -> Certificate | None:
    """Return the certificate with these weights, after least squares has reduced their roundoff, or ``None``."""
    tokens = layer.allowed[places]
    differences, biases = layer.W[tokens] - layer.W[token], layer.b[tokens] - layer.b[token]
    weights = weights / weights.sum()
    for rows in ([differences.T], [differences.T, biases[None]]):
        system = np.vstack([*rows, np.full((1, len(tokens)), layer.weight_resolution or 1.0)])
        scale = np.maximum(abs(system).max(1, keepdims=True), np.finfo(np.float64).tiny)
        target = np.zeros(len(system))
        target[-1] = (layer.weight_resolution or 1.0) / scale[-1, 0]
        exact = weights
        for _ in range(2):
            exact = exact + np.linalg.lstsq(system / scale, target - (system / scale) @ exact)[0]
        exact = np.maximum(exact, 0)
        exact /= exact.sum()
        residual = float(np.linalg.norm(exact @ differences))
        deficit = max(0.0, -float(exact @ biases))
        if residual <= layer.weight_resolution and deficit <= layer.bias_resolution:
            return Certificate(tokens[exact > 0], exact[exact > 0], residual, deficit)
    return None
