"""Sigsoftmax: exponential times sigmoid in place of the exponential."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .pointwise import Pointwise


@final
class Sigsoftmax(Pointwise):
    r"""A softmax over :math:`ss(x) = 2x - \log(1 + e^x)`.

    .. math:: P(x | c) ∝ \exp(z_x)\, σ(z_x), \quad z_x = h_c·w_x + b_x

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        bias: whether every token has a bias.

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
