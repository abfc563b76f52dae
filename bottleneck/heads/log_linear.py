"""Heads whose logits are linear in one context vector: their log-probability matrix has low rank."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from .base import Head, RankBound
from .scores import Factors, Scores


class LogLinear(Head):
    r"""A softmax over :math:`h·w_x + b_x`, whatever makes the context vector h.

    Subclasses say only how h comes from the hidden state.
    """

    @abstractmethod
    def context(self, hidden: Tensor) -> Tensor:
        """Return the context vectors h: (…, hidden_size) → (…, d)."""

    def factors(self, hidden: Tensor) -> Factors:
        """Return H, W and b with logits = H Wᵀ + b, so that A = [H, 1, −log Z] [W, b, 1]ᵀ."""
        return Factors(self.context(hidden), self.weight, self.bias)

    def scores(self, hidden: Tensor) -> Scores:
        """Return the logits' factors; see `Head.scores`."""
        return Scores((Factors(self.context(hidden).unsqueeze(-2), self.weight, self.bias),))

    @property
    def rank_bound(self) -> RankBound:
        """That of `RankBound.of_softmax`."""
        return RankBound.of_softmax(
            self,
            f"log-probabilities are d = {self.embedding_size} context directions"
            + (", the output bias" if self.bias is not None else "")
            + " and the log-partition column; centring the rows removes the last",
        )
