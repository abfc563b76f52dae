"""Heads whose logits are linear in one context vector: their log-probability matrix has low rank."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from .base import Factors, Head, RankBound, Reduction
from .blocked import mixture_nll


class LogLinear(Head):
    r"""A softmax over :math:`h·w_x + b_x`, whatever makes the context vector h.

    Subclasses say only how h comes from the hidden state.
    """

    @abstractmethod
    def context(self, hidden: Tensor) -> Tensor:
        """Return the context vectors h: (…, hidden_size) → (…, d)."""

    def factors(self, hidden: Tensor) -> Factors:
        """Return H, W and b with logits = H Wᵀ + b, so that A = [H, 1, −log Z] [W, b, 1]ᵀ."""
        return Factors(self.context(hidden), self.weight, self.bias)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return log P(x | hidden) in nats: (…, hidden_size) → (…, M)."""
        logits = torch.nn.functional.linear(self.context(hidden), self.weight, self.bias)
        return torch.log_softmax(logits, -1)

    def nll(self, hidden: Tensor, targets: Tensor, *, reduction: Reduction = "mean") -> Tensor:
        """Return −log P(target | hidden) in nats; see `Head.nll`."""
        self.check_targets(hidden, targets, reduction)
        contexts = self.context(hidden).reshape(-1, 1, self.embedding_size)
        certain = contexts.new_zeros(contexts.shape[0], 1)
        loss = mixture_nll(contexts, certain, self.weight, self.bias, targets.reshape(-1), reduction=reduction)
        return loss.view(targets.shape) if reduction == "none" else loss

    @property
    def rank_bound(self) -> RankBound:
        """d + 1 for the logits' d directions and the log-partition; a bias adds one."""
        d, bias = self.embedding_size, int(self.config.bias)
        return RankBound(
            raw=d + 1 + bias,
            centered=d + bias,
            why=f"log-probabilities are d = {d} context directions"
            + (", the output bias" if bias else "")
            + " and the log-partition column; centring the rows removes the last",
        )
