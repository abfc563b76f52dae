"""What several formulas are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from softmax_bottleneck.heads import Head


def normalized(unnormalized: Tensor) -> Tensor:
    return unnormalized / unnormalized.sum(-1, keepdim=True)


def logits_of(head: Head, context: Tensor) -> Tensor:
    logits = context @ head.weight.T
    return logits if head.bias is None else logits + head.bias


def contexts(head: Any, hidden: Tensor) -> list[Tensor]:
    """Every context vector of the head, or the hidden state itself."""
    return [hidden] if head.contexts is None else vectors(head.contexts, hidden)


def vectors(made: Any, hidden: Tensor) -> list[Tensor]:
    """h_k = tanh(W_k g + b_k)."""
    d, linear = made.embedding_size, made.projection
    pairs = zip(linear.weight.split(d), linear.bias.split(d), strict=True)
    return [torch.tanh(hidden @ weight.T + bias) for weight, bias in pairs]


def prior(head: Any, hidden: Tensor) -> list[Tensor]:
    return weights(head.mixture, hidden)


def weights(made: Any, hidden: Tensor) -> list[Tensor]:
    weights = normalized(torch.exp(hidden @ made.projection.weight.T))
    return [weight.unsqueeze(-1) for weight in weights.unbind(-1)]


def integrated(head: Any, logits: Tensor) -> Tensor:
    """The integral of the slopes: each piece gives its slope times the part of it that x has passed."""
    v, interval = head.function.v, head.interval
    width = 2 * interval / len(v)
    bent = torch.full_like(logits, -interval)
    for i, slope in enumerate(torch.log(1 + torch.exp(v))):
        passed = logits + interval - i * width
        passed = passed if i == 0 else passed.clamp(min=0)
        bent = bent + slope * (passed if i == len(v) - 1 else passed.clamp(max=width))
    return bent
