"""The standard output layer."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor

from .base import HeadConfig
from .context import single_context
from .log_linear import LogLinear


@final
class Softmax(LogLinear):
    r"""A softmax over dot products with output embeddings.

    .. math:: P(x | c) = \frac{\exp(h_c·w_x + b_x)}{\sum_{x'} \exp(h_c·w_{x'} + b_{x'})}

    The hidden state is the context vector when its size is d, else ``h = tanh(W_h g + b_h)``: a `MoS` with
    one component.

    References:
        Yang et al. 2018, eq. 1.

    Example:
        >>> import torch
        >>> head = Softmax(hidden_size=4, vocab_size=10)
        >>> head.log_prob(torch.randn(3, 4)).exp().sum(-1).round(decimals=4).tolist()
        [1.0, 1.0, 1.0]
        >>> head.rank_bound.raw, head.rank_bound.centered
        (6, 5)
    """

    Config = HeadConfig

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.contexts = single_context(self.hidden_size, self.embedding_size)

    def context(self, hidden: Tensor) -> Tensor:
        """Return the context vectors h: (…, hidden_size) → (…, d)."""
        return hidden if self.contexts is None else self.contexts(hidden).squeeze(-2)
