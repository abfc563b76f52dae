"""Functions of the logits in closed form."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.checks import typed
from ..errors import ConfigurationError


class SoftCap(nn.Module):
    """``f(z) = c tanh(z / c)``, which keeps logits within ±c."""

    def __init__(self, soft_cap: float) -> None:
        super().__init__()
        self.soft_cap = soft_cap

    def forward(self, logits: Tensor) -> Tensor:
        """Apply f to each element."""
        return torch.tanh(logits / self.soft_cap) * self.soft_cap


class LogSigmoidProduct(nn.Module):
    """``f(x) = x + p log σ(x − c)``, without overflow and without cancellation at large x."""

    def __init__(self, center: float = 0.0, power: float = 1.0) -> None:
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


@typed
def generalized_sigsoftmax(*, c: float = -1.5, k: float = 2.5) -> LogSigmoidProduct:
    """Return ``f(x) = x + (k − 1) log σ(x − c)``.

    Args:
        c: the logit around which the slope changes from k to 1; −1.5 as in Parthiban et al. 2021.
        k: the slope far below c, positive; far above c the slope is 1. Parthiban et al. 2021 have 2.5 for Penn Treebank
            and 3 for WikiText-2.

    Raises:
        ConfigurationError: for c and k that give no increasing function.
    """
    if not (k > 0 and math.isfinite(k) and math.isfinite(c)):
        raise ConfigurationError(f"generalized sigsoftmax needs finite c and k > 0, not c = {c}, k = {k}")
    return LogSigmoidProduct(c, k - 1)
