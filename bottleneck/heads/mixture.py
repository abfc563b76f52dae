"""Mixtures of softmaxes: heads whose probabilities, not their logits, are mixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from .base import Head, RankBound
from .layers import ContextVectors, MixtureWeights
from .plif import PLIF


class Mixture(Head):
    r"""K softmaxes that share their output embeddings: :math:`\sum_k π_{c,k} \mathrm{softmax}_x f(h_{c,k}·w_x + b_x)`.

    Subclasses build ``contexts``, ``mixture`` and, unless f is the identity, ``function``; see `Head.scores`.
    """

    mixture: MixtureWeights

    @property
    def rank_bound(self) -> RankBound:
        """None for K > 1: log Σ exp of K linear functions is not linear (Yang et al. 2018, §2.4)."""
        if self.mixture.components == 1 and self.function is None:
            return RankBound.of_softmax(self, "a mixture of one softmax is a softmax")
        return RankBound(None, None, "a mixture of softmaxes has no rank bound below min(T, M)")


@final
class MoS(Mixture, parts=(ContextVectors,)):
    r"""Mixture of softmaxes: the high-rank output layer of Yang et al. 2018.

    .. math:: P(x | c) = \sum_k π_{c,k} \frac{\exp(h_{c,k}·w_x + b_x)}{\sum_{x'} \exp(h_{c,k}·w_{x'} + b_{x'})}

    Args:
        residual: whether context vectors are the hidden state plus a linear function of it that starts at 0, instead of
            the tanh of one. All components then start as one softmax over the hidden states, which keeps a trained
            model's predictions; the prior, which starts at random, gives them different gradients.

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
            context_dropout=context_dropout,
            residual=residual,
            context_rank=context_rank,
        )
        self.mixture = MixtureWeights(hidden_size, components=components)


@final
class MoSPLIF(Mixture, parts=(ContextVectors, PLIF)):
    r"""A mixture of K softmaxes whose logits pass through one learned function, a `PLIF` f.

    .. math:: P(x | c) = \sum_k π_{c,k}\, \mathrm{softmax}_x\, f(h_{c,k}·w_x + b_x)

    References:
        Ganea et al. 2019, §5.2 and table 1, "MoS + PLIF"; eq. 12 for f.

    Example:
        >>> MoSPLIF(hidden_size=4, vocab_size=10, components=2, knots=100).function.slope_statistics().min > 0
        True
    """

    function: PLIF

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        components: int = 15,
        context_dropout: float = 0.0,
        knots: int = 100_000,
        interval: float = 20.0,
        noise: float = 1.0,
        learn_slopes: bool = True,
        slope_learning_rate: float = 1.0,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        self.components, self.context_dropout = components, context_dropout
        self.contexts = ContextVectors(
            hidden_size, self.embedding_size, components=components, context_dropout=context_dropout
        )
        self.mixture = MixtureWeights(hidden_size, components=components)
        self.knots, self.interval, self.noise = knots, interval, noise
        self.learn_slopes, self.slope_learning_rate = learn_slopes, slope_learning_rate
        self.function = PLIF(
            knots=knots,
            interval=interval,
            noise=noise,
            learn_slopes=learn_slopes,
            slope_learning_rate=slope_learning_rate,
        )
