"""LMS with PLIF: a softmax behind a learned increasing function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from .base import HeadConfig
from .plif import PLIF
from .pointwise import Pointwise


@dataclass(frozen=True, kw_only=True)
class LMSPLIFConfig(HeadConfig):
    """Settings of `LMSPLIF`."""

    knots: int = 100_000
    """P, the number of linear pieces on [−interval, interval]."""
    interval: float = 20.0
    """T, half the width of the interval covered; f goes on linearly outside."""
    noise: float = 1.0
    """Standard deviation of the initial slope parameters around unit slope."""


@final
class LMSPLIF(Pointwise):
    r"""Linear-monotonic-softmax with a `PLIF`: :math:`P(x | c) ∝ \exp f(h_c·w_x + b_x)`.

    References:
        Ganea et al. 2019, eq. 12 and §4; defaults are the settings its authors gave to Parthiban et al. 2021.

    Example:
        >>> LMSPLIF(hidden_size=4, vocab_size=10, knots=1000).function.slopes().min().item() > 0
        True
    """

    Config = LMSPLIFConfig
    config: LMSPLIFConfig

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        config = self.config
        self.function = PLIF(knots=config.knots, interval=config.interval, noise=config.noise)
