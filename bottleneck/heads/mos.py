"""Mixture of softmaxes (MoS): the high-rank output layer of Yang et al. 2018."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from .context import ContextVectors, MixtureWeights
from .mixture import Mixture


@final
class MoS(Mixture):
    r"""A mixture of K softmaxes that share their output embeddings.

    .. math:: P(x | c) = \sum_k π_{c,k} \frac{\exp(h_{c,k}·w_x + b_x)}{\sum_{x'} \exp(h_{c,k}·w_{x'} + b_{x'})}

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        components: K, the number of components; 15 as in the language models of Yang et al. 2018.
        context_dropout: probability of dropping an entry of a context vector, the same entries at every step of a
            sequence (Yang et al. 2018, table 8, "context vector V-dropout"); 0 drops none.
        residual: whether context vectors are the hidden state plus a linear function of it that starts at 0, instead of
            the tanh of one. All components then start as one softmax over the hidden states, which keeps a trained
            model's predictions; the prior, which starts at random, gives them different gradients.
        context_rank: rank of the linear functions that make the context vectors; ``None`` for full rank.
        bias: whether every token has a bias.

    References:
        Yang et al. 2018, §2.4.

    Example:
        >>> import torch
        >>> head = MoS(8, 50, embedding_size=4, components=3)
        >>> loss = head.nll(torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.long))
        >>> loss.shape
        torch.Size([])
    """

    as_softmax: ClassVar[Mapping[str, Any] | None] = {"residual": True}

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        components: int = 15,
        context_dropout: float = 0.0,
        residual: bool = False,
        context_rank: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        self.components, self.context_dropout = components, context_dropout
        self.residual, self.context_rank = residual, context_rank
        self.contexts = ContextVectors(
            hidden_size,
            self.embedding_size,
            components=components,
            dropout=context_dropout,
            residual=residual,
            rank=context_rank,
        )
        self.mixture = MixtureWeights(hidden_size, components=components)
