"""Heads that apply one scalar function to each logit before the softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import ConfigurationError
from .base import Head, RankBound
from .layers import single_context
from .plif import PLIF


class Pointwise(Head):
    r"""A softmax over :math:`f(h·w_x + b_x)` with one increasing function f for all logits (Ganea et al. 2019, eq. 12).

    Subclasses build ``function``, a module that maps a tensor of logits to a tensor of the same shape.
    """

    function: nn.Module

    def __init__(
        self, hidden_size: int, vocab_size: int, *, embedding_size: int | None = None, bias: bool = True
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        self.contexts = single_context(self.hidden_size, self.embedding_size)

    @property
    def rank_bound(self) -> RankBound:
        """None: a pointwise nonlinearity can raise the rank up to min(T, M) (Ganea et al. 2019, lemma 4)."""
        return RankBound(None, None, "a pointwise nonlinearity on the logits has no rank bound below min(T, M)")


class LogSigmoidProduct(nn.Module):
    """``f(x) = x + p log σ(x − c)``, without overflow and without cancellation at large x.

    Args:
        center: c.
        power: p.
    """

    def __init__(self, *, center: float = 0.0, power: float = 1.0) -> None:
        super().__init__()
        self.center, self.power = center, power

    def forward(self, logits: Tensor) -> Tensor:
        """Apply f to each element."""
        shifted = logits - self.center if self.center else logits
        if self.power <= 0:
            # log σ(y) = y + log σ(−y) avoids ∞ − ∞ at −∞, the logit of a masked token.
            line = (1 + self.power) * logits - self.power * self.center
            return torch.add(line, F.logsigmoid(-shifted), alpha=self.power)
        return torch.add(logits, F.logsigmoid(shifted), alpha=self.power)


@final
class Sigsoftmax(Pointwise):
    r"""A softmax over :math:`ss(x) = 2x - \log(1 + e^x)`: exponential times sigmoid in place of the exponential.

    .. math:: P(x | c) ∝ \exp(z_x)\, σ(z_x), \quad z_x = h_c·w_x + b_x

    References:
        Kanai et al. 2018; Ganea et al. 2019, §1, for the form ss(x).

    Example:
        >>> Sigsoftmax(hidden_size=4, vocab_size=10).rank_bound.raw is None
        True
    """

    def __init__(
        self, hidden_size: int, vocab_size: int, *, embedding_size: int | None = None, bias: bool = True
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        self.function = LogSigmoidProduct()


@final
class GeneralizedSigsoftmax(Pointwise):
    r"""A softmax over :math:`f(x) = k (x - c) + c - (k - 1) \log(1 + e^{x - c})` (GSS).

    .. math:: P(x | c) ∝ \exp(z_x)\, σ(z_x - c)^{k - 1}, \quad z_x = h_c·w_x + b_x

    `Sigsoftmax` is c = 0 and k = 2; k = 1 is a softmax.

    Args:
        c: the logit around which the slope changes from k to 1; −1.5 as in Parthiban et al. 2021.
        k: the slope far below c, positive; far above c the slope is 1. Parthiban et al. 2021 have 2.5 for Penn Treebank
            and 3 for WikiText-2.

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


@final
class LMSPLIF(Pointwise, parts=(PLIF,)):
    r"""Linear-monotonic-softmax (LMS) with a `PLIF`: :math:`P(x | c) ∝ \exp f(h_c·w_x + b_x)`.

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
