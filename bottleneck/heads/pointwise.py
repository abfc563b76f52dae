"""Heads that apply one scalar function to each logit before the softmax."""

from __future__ import annotations

from torch import Tensor, nn

from .base import Head, RankBound
from .context import single_context
from .scores import Factors, Scores


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

    def context(self, hidden: Tensor) -> Tensor:
        """Return the context vectors h: (…, hidden_size) → (…, d)."""
        return hidden if self.contexts is None else self.contexts(hidden).squeeze(-2)

    def scores(self, hidden: Tensor) -> Scores:
        """Return the factors of the logits and the function on them; see `Head.scores`."""
        factors = Factors(self.context(hidden).unsqueeze(-2), self.weight, self.bias)
        return Scores((factors,), function=self.function)

    @property
    def rank_bound(self) -> RankBound:
        """None: a pointwise nonlinearity can raise the rank up to min(T, M) (Ganea et al. 2019, lemma 4)."""
        return RankBound(None, None, "a pointwise nonlinearity on the logits has no rank bound below min(T, M)")
