"""The inverse of an increasing function, by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

FARTHEST = 2.0**20
"""Largest |x| that is searched."""
MARGIN = 0.01
"""Part of a bounded function's range that is left out at either end: f is flat there, and a gradient almost 0."""
FLAT = 1e-3
"""A function ends where doubling x adds no more than this part of its value."""
HALVINGS = 64


@torch.no_grad()
def logits_before(function: Callable[[Tensor], Tensor], log_probs: Tensor) -> Tensor:
    """Return logits x for which log softmax f(x) = ``log_probs``; values that a bounded f cannot reach are clamped.

    The softmax does not depend on a constant added to f(x). It is chosen so that f(x) has the mean f(0), because the
    functions of the heads are nonlinear around 0; if f is bounded on one side, so that all values are within its range.
    ``function`` is elementwise and increasing, ``log_probs`` has the shape (M,); the logits are float64, (M,).
    """
    centered = log_probs.double() - log_probs.double().mean()
    lowest, low, zero, high, highest = function(centered.new_tensor([-2.0, -1.0, 0.0, 1.0, 2.0]) * (FARTHEST / 2))
    target = centered + zero
    margin = MARGIN * torch.minimum(highest - lowest, target.max() - target.min())
    least = float(lowest + margin) if bool(low - lowest <= FLAT * (zero - low)) else -math.inf
    most = float(highest - margin) if bool(highest - high <= FLAT * (high - zero)) else math.inf
    if math.isinf(most):
        target += max(0.0, least - float(target.min()))
    elif math.isinf(least):
        target -= max(0.0, float(target.max()) - most)
    return inverse(function, target.clamp(least, most))


@torch.no_grad()
def inverse(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Return x with f(x) = ``values``, both float64, by bisection, for an elementwise and increasing f.

    For a value outside f's range the result is an end of the interval that was searched.
    """
    low, high = torch.full_like(values, -1.0), torch.full_like(values, 1.0)
    while bool((function(low) > values).any()) and float(low.min()) > -FARTHEST:
        low *= 2
    while bool((function(high) < values).any()) and float(high.max()) < FARTHEST:
        high *= 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = function(middle) > values
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (low + high) / 2
