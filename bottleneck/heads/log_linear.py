"""Heads whose logits are linear in one context vector: their log-probability matrix has low rank."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from .base import Head, RankBound
from .scores import Factors, Scores


class SoftCap(nn.Module):
    """``f(z) = c tanh(z / c)``, which keeps logits within ±c.

    Args:
        cap: c.
    """

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
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        bias: whether every token has a bias.
        scale: s, a factor on all logits.
        soft_cap: c, the largest logit; ``None`` for none.

    Raises:
        ConfigurationError: for a size below one, a scale of 0, or a soft cap that is not positive.
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
        if not scale or (soft_cap is not None and not soft_cap > 0):
            raise ConfigurationError(
                f"a logit scale must not be 0 and a soft cap must be positive, not {scale!r} and {soft_cap!r}"
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
