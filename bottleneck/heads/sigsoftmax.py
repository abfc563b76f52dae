"""Sigsoftmax: exponential times sigmoid in place of the exponential."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import HeadConfig
from .pointwise import Pointwise


@final
class Sigsoftmax(Pointwise):
    r"""A softmax over :math:`ss(x) = 2x - \log(1 + e^x)`.

    .. math:: P(x | c) ∝ \exp(z_x)\, σ(z_x), \quad z_x = h_c·w_x + b_x

    References:
        Kanai et al. 2018; the form ss(x) is that of the LMS paper, §1.

    Example:
        >>> Sigsoftmax(hidden_size=4, vocab_size=10).rank_bound.raw is None
        True
    """

    Config = HeadConfig

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.function = LogSigmoidProduct()


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
        """Apply it to each element."""
        shifted = logits - self.center if self.center else logits
        if self.power <= 0:
            # log σ(y) = y + log σ(−y), so that at −∞, a masked token, no infinity meets its opposite.
            line = (1 + self.power) * logits - self.power * self.center
            return torch.add(line, F.logsigmoid(-shifted), alpha=self.power)
        return torch.add(logits, F.logsigmoid(shifted), alpha=self.power)
