"""MoS with PLIF: a mixture of softmaxes, each behind one learned increasing function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from .base import ParameterSettings, RankBound
from .context import ContextVectors, MixtureWeights
from .inverse import unbent
from .mixture import Mixture, MixtureConfig
from .plif import PLIF, PLIFConfig


@dataclass(frozen=True, kw_only=True)
class MoSPLIFConfig(PLIFConfig, MixtureConfig):
    """Settings of `MoSPLIF`."""


@final
class MoSPLIF(Mixture):
    r"""A mixture of K softmaxes whose logits pass through one learned function, a `PLIF` f.

    .. math:: P(x | c) = \sum_k π_{c,k}\, \mathrm{softmax}_x\, f(h_{c,k}·w_x + b_x)

    References:
        Ganea et al. 2019, §5.2 and table 1, "MoS + PLIF"; eq. 12 for f.

    Example:
        >>> MoSPLIF(hidden_size=4, vocab_size=10, components=2, knots=100).plif.slope_statistics().min > 0
        True
    """

    Config = MoSPLIFConfig
    config: MoSPLIFConfig
    function: PLIF

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        components = self.config.components
        self.contexts = ContextVectors(
            self.hidden_size, self.embedding_size, components=components, dropout=self.config.context_dropout
        )
        self.mixture = MixtureWeights(self.hidden_size, components=components)
        self.function = self.config.plif()

    @property
    def plif(self) -> PLIF:
        """The function on the logits."""
        return self.function

    def parameter_settings(self) -> list[ParameterSettings]:
        """Give the slopes their own learning rate; see `Head.parameter_settings`."""
        return self.config.slope_settings(self.function)

    def _logits_of(self, log_probs: Tensor) -> Tensor:
        return unbent(self.function, log_probs)

    @property
    def rank_bound(self) -> RankBound:
        """None: neither a mixture nor a pointwise nonlinearity has one."""
        return RankBound(None, None, "a mixture of softmaxes has no rank bound below min(T, M)")
