"""Mixtures of softmaxes: heads whose probabilities, not their logits, are mixed."""

from __future__ import annotations

from torch import Tensor, nn

from .base import Head, RankBound
from .context import MixtureWeights
from .scores import Factors, Scores


class Mixture(Head):
    r"""K softmaxes that share their output embeddings: :math:`\sum_k π_{c,k} \mathrm{softmax}_x f(h_{c,k}·w_x + b_x)`.

    Subclasses build ``contexts``, which makes the K context vectors (…, K, d) of a hidden state, ``mixture``, which
    makes its log mixture weights (…, K), and ``function``, which is applied to the logits; ``None`` is the identity.
    """

    contexts: nn.Module
    mixture: MixtureWeights

    def scores(self, hidden: Tensor) -> Scores:
        """Return the components' factors, their weights, and the function on the logits; see `Head.scores`."""
        factors = Factors(self.contexts(hidden), self.weight, self.bias)
        return Scores((factors,), self.mixture(hidden), self.function)

    @property
    def rank_bound(self) -> RankBound:
        """None for K > 1: log Σ exp of K linear functions is not linear (Yang et al. 2018, §2.4)."""
        if self.mixture.components == 1 and self.function is None:
            return RankBound.of_softmax(self, "a mixture of one softmax is a softmax")
        return RankBound(None, None, "a mixture of softmaxes has no rank bound below min(T, M)")
