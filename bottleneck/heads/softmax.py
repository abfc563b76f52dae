"""The standard output layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from .context import single_context
from .log_linear import LogLinear


@final
class Softmax(LogLinear):
    r"""A softmax over dot products with output embeddings.

    .. math:: P(x | c) = \frac{\exp(h_c·w_x + b_x)}{\sum_{x'} \exp(h_c·w_{x'} + b_{x'})}

    The hidden state is the context vector when its size is d, else ``h = tanh(W_h g + b_h)``: a `MoS` with
    one component. Gemma and others scale the logits or cap them softly; see `LogLinear`.

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        bias: whether every token has a bias.
        scale: s, a factor on all logits.
        soft_cap: c, the largest logit, which is :math:`c \tanh(z / c)`; ``None`` for none.

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

    as_softmax: ClassVar[Mapping[str, Any] | None] = {}

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        bias: bool = True,
        scale: float = 1.0,
        soft_cap: float | None = None,
    ) -> None:
        super().__init__(
            hidden_size, vocab_size, embedding_size=embedding_size, bias=bias, scale=scale, soft_cap=soft_cap
        )
        self.contexts = single_context(self.hidden_size, self.embedding_size)

    @classmethod
    def of(
        cls, weight: Tensor, bias: Tensor | None = None, *, scale: float = 1.0, soft_cap: float | None = None
    ) -> Softmax:
        """Return the head that has these output embeddings, W (M, d), and biases (M,); neither is copied."""
        with torch.device("meta"):
            head = cls(weight.shape[1], weight.shape[0], bias=bias is not None, scale=scale, soft_cap=soft_cap)
        head.weight = nn.Parameter(weight, requires_grad=weight.requires_grad)
        head.bias = None if bias is None else nn.Parameter(bias, requires_grad=bias.requires_grad)
        return head.eval()

    def context(self, hidden: Tensor) -> Tensor:
        """Return the context vectors h: (…, hidden_size) → (…, d)."""
        return hidden if self.contexts is None else self.contexts(hidden).squeeze(-2)
