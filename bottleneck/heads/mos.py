"""Mixture of softmaxes: the high-rank output layer of Yang et al. 2018."""

from __future__ import annotations

from typing import Any, final

from .base import RankBound
from .context import ContextVectors, MixtureWeights
from .mixture import Mixture, MixtureConfig


@final
class MoS(Mixture):
    r"""A mixture of K softmaxes that share their output embeddings.

    .. math:: P(x | c) = \sum_k π_{c,k} \frac{\exp(h_{c,k}·w_x + b_x)}{\sum_{x'} \exp(h_{c,k}·w_{x'} + b_{x'})}

    References:
        Yang et al. 2018, §2.4.

    Example:
        >>> import torch
        >>> head = MoS(hidden_size=8, vocab_size=50, embedding_size=4, components=3)
        >>> loss = head.nll(torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.long))
        >>> loss.shape
        torch.Size([])
    """

    Config = MixtureConfig
    config: MixtureConfig

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        components = self.config.components
        self.contexts = ContextVectors(
            self.hidden_size, self.embedding_size, components=components, dropout=self.config.context_dropout
        )
        self.mixture = MixtureWeights(self.hidden_size, components=components)
        self.function = None

    @property
    def rank_bound(self) -> RankBound:
        """None for K > 1: log Σ exp of K linear functions is no linear function (MoS paper §2.4)."""
        if self.config.components == 1:
            d, bias = self.embedding_size, int(self.config.bias)
            return RankBound(d + 1 + bias, d + bias, "a mixture of one softmax is a softmax")
        return RankBound(None, None, "a mixture of softmaxes has no rank bound below min(T, M)")
