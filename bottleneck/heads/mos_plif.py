"""A mixture of softmaxes (MoS) with one piecewise linear increasing function (PLIF) on all logits."""

from __future__ import annotations

from typing import final

from .context import ContextVectors, MixtureWeights
from .mixture import Mixture
from .plif import PLIF


@final
class MoSPLIF(Mixture):
    r"""A mixture of K softmaxes whose logits pass through one learned function, a `PLIF` f.

    .. math:: P(x | c) = \sum_k π_{c,k}\, \mathrm{softmax}_x\, f(h_{c,k}·w_x + b_x)

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        components: K, the number of components; 15 as in the language models of Yang et al. 2018.
        context_dropout: probability of dropping an entry of a context vector, the same entries at every step of a
            sequence (Yang et al. 2018, table 8, "context vector V-dropout"); 0 drops none.
        knots: P, the number of linear pieces on [−interval, interval].
        interval: T, half the width of the interval covered; f continues linearly outside.
        noise: standard deviation of the initial slope parameters around unit slope.
        learn_slopes: whether slopes are learned; Parthiban et al. 2021 found fixed random slopes as good.
        slope_learning_rate: learning rate of the slopes, as a multiple of the model's.
        bias: whether every token has a bias.

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
        self.contexts = ContextVectors(hidden_size, self.embedding_size, components=components, dropout=context_dropout)
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
