"""The standard output layer."""

from __future__ import annotations

from typing import final

from torch import Tensor

from .context import single_context
from .log_linear import LogLinear


@final
class Softmax(LogLinear):
    r"""A softmax over dot products with output embeddings.

    .. math:: P(x | c) = \frac{\exp(h_c·w_x + b_x)}{\sum_{x'} \exp(h_c·w_{x'} + b_{x'})}

    The hidden state is the context vector when its size is d, else ``h = tanh(W_h g + b_h)``: a `MoS` with
    one component.

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        bias: whether every token has a bias.

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

    def __init__(
        self, hidden_size: int, vocab_size: int, *, embedding_size: int | None = None, bias: bool = True
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        self.contexts = single_context(self.hidden_size, self.embedding_size)

    def context(self, hidden: Tensor) -> Tensor:
        """Return the context vectors h: (…, hidden_size) → (…, d)."""
        return hidden if self.contexts is None else self.contexts(hidden).squeeze(-2)
