"""The formula of the head mixtape, as its paper prints it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from formulas.parts import contexts, normalized, vectors

SETTINGS = {"components": 4, "gate_size": 2}


def naive(head: Any, hidden: Tensor) -> Tensor:
    """The four leaves' weights written out, and w_x times each token's own mixture of the context vectors."""
    scalars, b = hidden @ head.gate_scalars.weight.T, head.function.bias
    one, two, three = (
        1 / (1 + torch.exp(-(vector @ head.gate_weight.T + scalars[..., i : i + 1] + b[i])))
        for i, vector in enumerate(vectors(head.gate_vectors, hidden))
    )
    leaves = [one * two, one * (1 - two), (1 - one) * three, (1 - one) * (1 - three)]
    mixed = sum(p.unsqueeze(-1) * h.unsqueeze(-2) for p, h in zip(leaves, contexts(head, hidden), strict=True))
    logits = (mixed * head.weight).sum(-1)
    return normalized(torch.exp(logits if head.bias is None else logits + head.bias))
