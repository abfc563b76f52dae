"""The inverse of an increasing function, by bisection."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

FARTHEST = 2.0**20
"""Largest |x| that is searched."""
RANGE = 0.98
"""Share of a bounded function's range that is used: near its ends f is flat, and a gradient there is almost 0."""
HALVINGS = 64


@torch.no_grad()
def logits_before(function: Callable[[Tensor], Tensor], log_probs: Tensor) -> Tensor:
    """Return logits x for which log softmax f(x) = ``log_probs``; values outside f's range are clamped to it.

    The softmax does not depend on a constant added to f(x). It is chosen so that f(x) has the mean f(0), because the
    functions of the heads are nonlinear around 0. ``function`` is elementwise and increasing, ``log_probs`` has the
    shape (M,); the logits are float64, (M,).
    """
    centered = log_probs.double() - log_probs.double().mean()
    least, most = function(centered.new_tensor([-FARTHEST, FARTHEST]))
    margin = (1 - RANGE) / 2 * (most - least)
    wanted = centered + function(centered.new_zeros(1))
    return inverse(function, wanted.clamp(least + margin, most - margin))


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
