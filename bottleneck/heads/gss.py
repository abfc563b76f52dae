"""Generalized sigsoftmax: sigsoftmax with its bend moved and sharpened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from ..errors import ConfigurationError
from .base import HeadConfig
from .pointwise import Pointwise
from .sigsoftmax import LogSigmoidProduct


@dataclass(frozen=True, kw_only=True)
class GeneralizedSigsoftmaxConfig(HeadConfig):
    """Settings of `GeneralizedSigsoftmax`; the defaults are those of Parthiban et al. 2021 for Penn Treebank.

    On WikiText-2 they have k = 3.
    """

    c: float = -1.5
    """The logit about which the function bends."""
    k: float = 2.5
    """The slope far below c; far above it is 1. Positive, or the function would fall."""

    def __post_init__(self) -> None:
        """Refuse a function that does not increase."""
        super().__post_init__()
        if not (self.k > 0 and math.isfinite(self.k) and math.isfinite(self.c)):
            raise ConfigurationError(f"generalized sigsoftmax needs finite c and k > 0, not c = {self.c}, k = {self.k}")


@final
class GeneralizedSigsoftmax(Pointwise):
    r"""A softmax over :math:`f(x) = k (x - c) + c - (k - 1) \log(1 + e^{x - c})`.

    .. math:: P(x | c) ∝ \exp(z_x)\, σ(z_x - c)^{k - 1}, \quad z_x = h_c·w_x + b_x

    `Sigsoftmax` is c = 0 and k = 2; k = 1 is a softmax.

    References:
        Parthiban, Mao and Inkpen 2021 (AAAI), who generalize Kanai et al. 2018.

    Example:
        >>> GeneralizedSigsoftmax(hidden_size=4, vocab_size=10, c=-1.0, k=3.0).rank_bound.raw is None
        True
    """

    Config = GeneralizedSigsoftmaxConfig
    config: GeneralizedSigsoftmaxConfig

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.function = LogSigmoidProduct(center=self.config.c, power=self.config.k - 1)
