"""Mixtape: one softmax over logits that are mixed with different weights for each token."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from ..core.checks import check_positive
from ..errors import ConfigurationError
from .base import Head, ParameterSettings, RankBound
from .layers import ContextVectors, init_embeddings_
from .scores import Factors, Scores


@final
class Mixtape(Head):
    r"""A softmax over a mixture of K logits, with different weights for each token.

    .. math:: P(x | c) ∝ \exp\Big(\sum_k π_{c,x,k}\, h_{c,k}·w_x + b_x\Big)

    The weights are products of sigmoids along the paths of a binary tree with K − 1 gates for each token:

    .. math:: γ_{c,x,i} = σ(v_x·\tanh(U_i g_c + a_i) + u_i·g_c + b_{x,i})

    For K = 4: π = γ₁γ₂, γ₁(1 − γ₂), (1 − γ₁)γ₃, (1 − γ₁)(1 − γ₃). A context takes one softmax, where `MoS` takes K.
    Every token has its own gates; Yang et al. 2019 also share gates among rare tokens to save time, which is left out.

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        components: K, the number of context vectors: a power of two, one for each leaf of the tree of gates (4 in Yang
            et al. 2019).
        gate_size: size of the gates' embeddings v; choose it much smaller than d to save time.
        bias: whether every token has a bias.

    Raises:
        ConfigurationError: for a size below one, or components that are not a power of two.

    References:
        Yang, Luong, Salakhutdinov and Le 2019, "Mixtape: Breaking the Softmax Bottleneck Efficiently" (NeurIPS).

    Example:
        >>> import torch
        >>> head = Mixtape(hidden_size=8, vocab_size=50, embedding_size=4, gate_size=3)
        >>> head.log_prob(torch.randn(2, 8)).exp().sum(-1).round(decimals=4).tolist()
        [1.0, 1.0]
    """

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        components: int = 4,
        gate_size: int = 100,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        check_positive(components=components, gate_size=gate_size)
        if components < 2 or components & (components - 1):
            raise ConfigurationError(f"Mixtape needs components that are a power of two from 2, not {components}")
        self.components, self.gate_size, gates = components, gate_size, components - 1
        self.contexts = ContextVectors(hidden_size, self.embedding_size, components=components)
        self.gate_vectors = ContextVectors(hidden_size, gate_size, components=gates)
        self.gate_scalars = nn.Linear(hidden_size, gates, bias=False)
        self.gate_weight = nn.Parameter(torch.empty(vocab_size, gate_size))
        init_embeddings_(self.gate_weight)
        self.function = GateTree(gates, vocab_size)

    def scores(self, hidden: Tensor) -> Scores:
        """Return the factors of the K logits, the K − 1 gates and the bias, and the tree; see `Head.scores`."""
        # u·g is one more coordinate of the gate vectors, with weight one for every token.
        vectors = torch.cat([self.gate_vectors(hidden), self.gate_scalars(hidden).unsqueeze(-1)], -1)
        weight = torch.cat([self.gate_weight, torch.ones_like(self.gate_weight[:, :1])], 1)
        logits, gates = Factors(self.contexts(hidden), self.weight, None), Factors(vectors, weight, None)
        if self.bias is None:
            return Scores((logits, gates), function=self.function)
        # The bias is added after the tree, whose weights sum to one: a bias of −∞ masks a token, and 0 · −∞ is NaN.
        bias = Factors(torch.ones_like(vectors[..., :1, :1]), self.bias.unsqueeze(1), None)
        return Scores((logits, gates, bias), function=self.function)

    def _logits_of(self, log_probs: Tensor) -> Tensor:
        return log_probs  # the bias is added after the tree

    @property
    def rank_bound(self) -> RankBound:
        """None: the weights are nonlinear in the context and differ from token to token."""
        return RankBound(None, None, "logits with mixture weights for each token have no rank bound below min(T, M)")


class GateTree(nn.Module):
    """A mixture of a token's K logits with weights that are products of gates along the paths of a binary tree."""

    def __init__(self, gates: int, vocab_size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(gates, vocab_size))

    def parameter_settings(self) -> list[ParameterSettings]:
        """Exclude the gates' biases from weight decay, which would act on them because they form a matrix."""
        return [ParameterSettings((self.bias,), weight_decay=False)]

    def forward(self, logits: Tensor, gates: Tensor, bias: Tensor | None = None) -> Tensor:
        """Map logits (…, K, M), gates before their sigmoids (…, K − 1, M) and a bias (…, 1, M) to (…, 1, M)."""
        open_gates = torch.sigmoid(gates + self.bias)
        # From the leaves to the root: the gates of a level are adjacent, those of the root come first.
        while (width := logits.shape[-2] // 2) > 0:
            level = open_gates[..., width - 1 : 2 * width - 1, :]
            logits = torch.lerp(logits[..., 1::2, :], logits[..., ::2, :], level)
        return logits if bias is None else logits + bias
