"""Heads that bend each logit by a scalar function before the softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Head, RankBound, Reduction
from .blocked import pointwise_nll
from .context import single_context


class Pointwise(Head):
    r"""A softmax over :math:`f(h·w_x + b_x)` with one increasing function f for all logits (LMS eq. 12).

    Subclasses build ``function``, a module that maps a tensor of logits to a tensor of the same shape.
    """

    function: nn.Module

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.contexts = single_context(self.hidden_size, self.embedding_size)

    def context(self, hidden: Tensor) -> Tensor:
        """Return the context vectors h: (…, hidden_size) → (…, d)."""
        return hidden if self.contexts is None else self.contexts(hidden).squeeze(-2)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return log P(x | hidden) in nats: (…, hidden_size) → (…, M)."""
        logits = F.linear(self.context(hidden), self.weight, self.bias)
        return torch.log_softmax(self.function(logits), -1)

    def nll(self, hidden: Tensor, targets: Tensor, *, reduction: Reduction = "mean") -> Tensor:
        """Return −log P(target | hidden) in nats; see `Head.nll`."""
        self.check_targets(hidden, targets, reduction)
        contexts = self.context(hidden).reshape(-1, self.embedding_size)
        loss = pointwise_nll(contexts, self.weight, self.bias, targets.reshape(-1), self.function, reduction=reduction)
        return loss.view(targets.shape) if reduction == "none" else loss

    @property
    def rank_bound(self) -> RankBound:
        """None: a pointwise nonlinearity can raise the rank up to min(T, M) (LMS theorem 3)."""
        return RankBound(None, None, "a pointwise nonlinearity on the logits has no rank bound below min(T, M)")
