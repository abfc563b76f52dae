"""Linear-monotonic-softmax (LMS) with a piecewise linear increasing function (PLIF) on the logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from .plif import PLIF
from .pointwise import Pointwise


@final
class LMSPLIF(Pointwise):
    r"""Linear-monotonic-softmax with a `PLIF`: :math:`P(x | c) ∝ \exp f(h_c·w_x + b_x)`.

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        knots: P, the number of linear pieces on [−interval, interval].
        interval: T, half the width of the interval covered; f continues linearly outside.
        noise: standard deviation of the initial slope parameters around unit slope.
        learn_slopes: whether slopes are learned; Parthiban et al. 2021 found fixed random slopes as good.
        slope_learning_rate: learning rate of the slopes, as a multiple of the model's.
        bias: whether every token has a bias.

    References:
        Ganea et al. 2019, eq. 12 and §4; defaults are the settings its authors gave to Parthiban et al. 2021.

    Example:
        >>> LMSPLIF(hidden_size=4, vocab_size=10, knots=1000).function.slope_statistics().min > 0
        True
    """

    as_softmax: ClassVar[Mapping[str, Any] | None] = {"noise": 0.0}
    function: PLIF

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        knots: int = 100_000,
        interval: float = 20.0,
        noise: float = 1.0,
        learn_slopes: bool = True,
        slope_learning_rate: float = 1.0,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        self.knots, self.interval, self.noise = knots, interval, noise
        self.learn_slopes, self.slope_learning_rate = learn_slopes, slope_learning_rate
        self.function = PLIF(
            knots=knots,
            interval=interval,
            noise=noise,
            learn_slopes=learn_slopes,
            slope_learning_rate=slope_learning_rate,
        )
