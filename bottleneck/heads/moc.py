"""Mixture of contexts: the low-rank baseline of the MoS paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from .context import ContextConfig, ContextVectors, MixtureWeights
from .log_linear import LogLinear


@dataclass(frozen=True, kw_only=True)
class MoCConfig(ContextConfig):
    """Settings of `MoC`."""

    components: int = 15
    """K, the number of context vectors that are mixed."""


@final
class MoC(LogLinear):
    r"""A softmax over one context vector that is itself a mixture of K.

    .. math:: P(x | c) ∝ \exp\Big(\big(\sum_k π_{c,k} h_{c,k}\big)·w_x + b_x\Big)

    The mixture happens before the softmax, so the rank is bounded exactly as in `Softmax`.

    References:
        Yang et al. 2018, eq. 2 (§2.5).

    Example:
        >>> MoC(hidden_size=8, vocab_size=10, embedding_size=4, components=3).rank_bound.raw
        6
    """

    Config = MoCConfig
    config: MoCConfig

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        components = self.config.components
        self.contexts = ContextVectors(
            self.hidden_size, self.embedding_size, components=components, dropout=self.config.context_dropout
        )
        self.mixture = MixtureWeights(self.hidden_size, components=components)

    def context(self, hidden: Tensor) -> Tensor:
        """Return the mixed context vectors: (…, hidden_size) → (…, d)."""
        weights, contexts = self.mixture(hidden).exp(), self.contexts(hidden)
        mixed: Tensor = (weights.unsqueeze(-1) * contexts).sum(-2)
        return mixed.to(contexts.dtype)
