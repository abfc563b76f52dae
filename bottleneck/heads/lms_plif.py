"""LMS with PLIF: a softmax behind a learned increasing function."""

from __future__ import annotations

from typing import Any, final

from .base import ParameterSettings
from .plif import PLIF, PLIFConfig
from .pointwise import Pointwise


@final
class LMSPLIF(Pointwise):
    r"""Linear-monotonic-softmax with a `PLIF`: :math:`P(x | c) ∝ \exp f(h_c·w_x + b_x)`.

    References:
        Ganea et al. 2019, eq. 12 and §4; defaults are the settings its authors gave to Parthiban et al. 2021.

    Example:
        >>> LMSPLIF(hidden_size=4, vocab_size=10, knots=1000).plif.slope_statistics().min > 0
        True
    """

    Config = PLIFConfig
    config: PLIFConfig
    function: PLIF

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.function = self.config.plif()

    @property
    def plif(self) -> PLIF:
        """The function on the logits."""
        return self.function

    def parameter_settings(self) -> list[ParameterSettings]:
        """Give the slopes their own learning rate; see `Head.parameter_settings`."""
        return self.config.slope_settings(self.function)
