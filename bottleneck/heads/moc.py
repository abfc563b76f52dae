"""Mixture of contexts (MoC): the low-rank baseline of Yang et al. 2018."""

from __future__ import annotations

from typing import final

from torch import Tensor

from .context import ContextVectors, MixtureWeights
from .log_linear import LogLinear


@final
class MoC(LogLinear):
    r"""A softmax over one context vector that is itself a mixture of K.

    .. math:: P(x | c) ∝ \exp\Big(\big(\sum_k π_{c,k} h_{c,k}\big)·w_x + b_x\Big)

    The mixture happens before the softmax, so the rank is bounded exactly as in `Softmax`.

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        components: K, the number of context vectors that are mixed; 15 as in the language models of Yang et al. 2018.
        context_dropout: probability of dropping an entry of a context vector, the same entries at every step of a
            sequence (Yang et al. 2018, table 8, "context vector V-dropout"); 0 drops none.
        bias: whether every token has a bias.

    References:
        Yang et al. 2018, eq. 2 (§2.5).

    Example:
        >>> MoC(hidden_size=8, vocab_size=10, embedding_size=4, components=3).rank_bound.raw
        6
    """

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        components: int = 15,
        context_dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        self.components, self.context_dropout = components, context_dropout
        self.contexts = ContextVectors(hidden_size, self.embedding_size, components=components, dropout=context_dropout)
        self.mixture = MixtureWeights(hidden_size, components=components)

    def context(self, hidden: Tensor) -> Tensor:
        """Return the mixed context vectors: (…, hidden_size) → (…, d)."""
        weights, contexts = self.mixture(hidden).exp(), self.contexts(hidden)
        mixed: Tensor = (weights.unsqueeze(-1) * contexts).sum(-2)
        return mixed.to(contexts.dtype)
