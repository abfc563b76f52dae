"""Heads whose logits are linear in one context vector: their log-probability matrix has low rank."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from .base import Head, RankBound
from .layers import ContextVectors, MixtureWeights, single_context
from .scores import Factors, Scores


class SoftCap(nn.Module):
    """``f(z) = c tanh(z / c)``, which keeps logits within ±c."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, logits: Tensor) -> Tensor:
        """Apply f to each element."""
        return torch.tanh(logits / self.cap) * self.cap


class LogLinear(Head):
    r"""A softmax over :math:`s (h·w_x + b_x)`; subclasses compute the context vector h from the hidden state.

    A soft cap c applies :math:`c \tanh(z / c)` to the logits. The model then is no longer log-linear.

    Args:
        scale: s, a factor on all logits.
        soft_cap: c, the largest logit, which is :math:`c \tanh(z / c)`; ``None`` for none.

    Raises:
        ConfigurationError: for a size below one, or a scale or soft cap that is out of range.
    """

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
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        if not 1e-30 < abs(scale) < 1e30 or (soft_cap is not None and not 1e-30 < soft_cap < 1e30):
            raise ConfigurationError(
                "a logit scale and a soft cap must have a size between 1e-30 and 1e30, and the cap must be positive, "
                f"not {scale!r} and {soft_cap!r}"
            )
        self.scale, self.soft_cap = scale, soft_cap
        self.function = None if soft_cap is None else SoftCap(soft_cap)

    @abstractmethod
    def context(self, hidden: Tensor) -> Tensor:
        """Return the context vectors h: (…, hidden_size) → (…, d)."""

    def scores(self, hidden: Tensor) -> Scores:
        """Return the factors of the logits, and the soft cap; see `Head.scores`."""
        contexts: Tensor = self.context(hidden)
        bias: Tensor | None = self.bias
        if self.scale != 1:
            contexts, bias = contexts * self.scale, None if bias is None else bias * self.scale
        return Scores((Factors(contexts.unsqueeze(-2), self.weight, bias),), function=self.function)

    def _logits_of(self, log_probs: Tensor) -> Tensor:
        return super()._logits_of(log_probs) / self.scale

    @property
    def rank_bound(self) -> RankBound:
        """The bound of `RankBound.of_softmax`; with a soft cap there is none."""
        if self.soft_cap is not None:
            why = f"soft-capping at {self.soft_cap:g} is a pointwise nonlinearity, which has no rank bound"
            return RankBound(None, None, why)
        return RankBound.of_softmax(
            self,
            f"log-probabilities consist of d = {self.embedding_size} context directions"
            + (", the output bias" if self.bias is not None else "")
            + " and the log-partition column; centring the rows removes the last",
        )


@final
class Softmax(LogLinear):
    r"""A softmax over dot products with output embeddings.

    .. math:: P(x | c) = \frac{\exp(h_c·w_x + b_x)}{\sum_{x'} \exp(h_c·w_{x'} + b_{x'})}

    The hidden state is the context vector when its size is d, else ``h = tanh(W_h g + b_h)``: a `MoS` with
    one component. Gemma and others scale the logits or cap them softly; see `LogLinear`.

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


@final
class MoC(LogLinear, parts=(ContextVectors,)):
    r"""Mixture of contexts: a softmax over one context vector that is itself a mixture of K.

    .. math:: P(x | c) ∝ \exp\Big(\big(\sum_k π_{c,k} h_{c,k}\big)·w_x + b_x\Big)

    The mixture happens before the softmax, so the rank is bounded exactly as in `Softmax`.

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
        self.contexts = ContextVectors(
            hidden_size, self.embedding_size, components=components, context_dropout=context_dropout
        )
        self.mixture = MixtureWeights(hidden_size, components=components)

    def context(self, hidden: Tensor) -> Tensor:
        """Return the mixed context vectors: (…, hidden_size) → (…, d)."""
        weights, contexts = self.mixture(hidden).exp(), self.contexts(hidden)
        mixed: Tensor = (weights.unsqueeze(-1) * contexts).sum(-2)
        return mixed.to(contexts.dtype)
