"""Generalized sigsoftmax (GSS): sigsoftmax with a free centre and a free slope."""

from __future__ import annotations

import math
from typing import final

from ..errors import ConfigurationError
from .pointwise import Pointwise
from .sigsoftmax import LogSigmoidProduct


@final
class GeneralizedSigsoftmax(Pointwise):
    r"""A softmax over :math:`f(x) = k (x - c) + c - (k - 1) \log(1 + e^{x - c})`.

    .. math:: P(x | c) ∝ \exp(z_x)\, σ(z_x - c)^{k - 1}, \quad z_x = h_c·w_x + b_x

    `Sigsoftmax` is c = 0 and k = 2; k = 1 is a softmax.

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        c: the logit around which the slope changes from k to 1; −1.5 as in Parthiban et al. 2021.
        k: the slope far below c, positive; far above c the slope is 1. Parthiban et al. 2021 have 2.5 for Penn Treebank
            and 3 for WikiText-2.
        bias: whether every token has a bias.

    Raises:
        ConfigurationError: for a size below one, or c and k that give no increasing function.

    References:
        Parthiban, Mao and Inkpen 2021 (AAAI), who generalize Kanai et al. 2018.

    Example:
        >>> GeneralizedSigsoftmax(hidden_size=4, vocab_size=10, c=-1.0, k=3.0).rank_bound.raw is None
        True
    """

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        c: float = -1.5,
        k: float = 2.5,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        if not (k > 0 and math.isfinite(k) and math.isfinite(c)):
            raise ConfigurationError(f"generalized sigsoftmax needs finite c and k > 0, not c = {c}, k = {k}")
        self.c, self.k = c, k
        self.function = LogSigmoidProduct(center=c, power=k - 1)
