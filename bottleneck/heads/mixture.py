"""Mixtures of softmaxes: heads whose probabilities, not their logits, are mixed."""

from __future__ import annotations

from torch import Tensor, nn

from .base import Head
from .scores import Factors, Scores


class Mixture(Head):
    r"""K softmaxes that share their output embeddings: :math:`\sum_k π_{c,k} \mathrm{softmax}_x f(h_{c,k}·w_x + b_x)`.

    Subclasses build ``contexts``, which makes the K context vectors (…, K, d) of a hidden state, ``mixture``, which
    makes its log mixture weights (…, K), and, where logits are bent before the softmax, ``function``.
    """

    contexts: nn.Module
    mixture: nn.Module
    function: nn.Module | None

    def scores(self, hidden: Tensor) -> Scores:
        """Return the components' factors, their weights, and the function on the logits; see `Head.scores`."""
        factors = Factors(self.contexts(hidden), self.weight, self.bias)
        return Scores((factors,), self.mixture(hidden), self.function)
