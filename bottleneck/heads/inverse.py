"""Where an increasing function takes given values."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

FARTHEST = 2.0**20
"""Beyond this no function is followed."""
RANGE = 0.98
"""Share of a bounded function's range whose values are sought: at its ends it is flat, and nothing moves from there."""
HALVINGS = 64


@torch.no_grad()
def logits_before(function: Callable[[Tensor], Tensor], log_probs: Tensor) -> Tensor:
    """Return logits x with log softmax f(x) = ``log_probs``, those whose f has the mean f(0), as far as f's range goes.

    They lie about 0, where logits start out otherwise and where such functions are curved; the softmax of f does not
    see the constant. ``function`` is elementwise and increasing; ``log_probs`` (M,); the logits are float64, (M,).
    """
    centered = log_probs.double() - log_probs.double().mean()
    least, most = function(centered.new_tensor([-FARTHEST, FARTHEST]))
    margin = (1 - RANGE) / 2 * (most - least)
    wanted = centered + function(centered.new_zeros(1))
    return inverse(function, wanted.clamp(least + margin, most - margin))


@torch.no_grad()
def inverse(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Return x with f(x) = ``values`` by bisection, for an elementwise and increasing f.

    Values outside f's range give an end of the interval that was searched. The result is float64, like ``values``.
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
