"""The formula of the head doc, as its paper prints it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from formulas.parts import logits_of, normalized, vectors, weights

SETTINGS = {"components": (2, 1)}


def naive(head: Any, hidden: Tensor) -> Tensor:
    """Two components from the last layer, one from the first, and the weights from the last."""
    first, last = hidden.split(head.layer_sizes, -1)
    contexts = [*vectors(head.contexts.layers["1"], last), *vectors(head.contexts.layers["0"], first)]
    assert len(contexts) == 3
    softmaxes = [normalized(torch.exp(logits_of(head, context))) for context in contexts]
    return sum(p * q for p, q in zip(weights(head.mixture, last), softmaxes, strict=True))
