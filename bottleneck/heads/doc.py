"""Direct output connection: a mixture of softmaxes whose components come from several layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from ..core.checks import check_dropout, check_positive, shown
from ..errors import ConfigurationError
from .base import Head
from .combination import Combination
from .layers import ContextVectors, MixtureWeights, locked_dropout

COMPONENTS = (15, 5)
"""Components from the last layer and from the one below it, as in the commands of the authors' published code."""


@final
class DOC(Combination):
    r"""A mixture of softmaxes over context vectors of several layers' hidden states.

    .. math:: P(x | c) = \sum_j π_{c,j} \mathrm{softmax}_x(h_{c,j}·w_x + b_x),
        \quad h_{c,j} = \tanh(W_j g^{n(j)}_c + b_j)

    where :math:`g^n` is the hidden state of layer n and the weights π come from the last layer's. The head takes the
    hidden states of all layers, concatenated, the first layer first: ``hidden_size`` is the sum of ``layer_sizes``.

    Dropout and `penalty` follow the authors' code. Dropout sets the same entries of all components' context vectors to
    zero, at all steps of a text. The penalty differs from the printed one.

    Args:
        hidden_size: size of the hidden states that come in, the sum over all layers.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        layer_sizes: size of each layer whose hidden states come in, the first layer first; ``None`` for one layer.
        components: number of components from each layer, the last layer first; layers not named give none. ``None``
            takes 15 from the last layer and 5 from the one below it, if there is one.
        context_dropout: probability of dropping an entry of all context vectors in training; 0 drops none.
        prior_penalty: weight λ of `penalty`; 10⁻³ as in the authors' commands, and 0 leaves the penalty out.
        bias: whether every token has a bias.

    Raises:
        ConfigurationError: for a size below one, or layers and components that do not fit together.

    References:
        Takase, Suzuki and Nagata 2018, "Direct Output Connection for a High-Rank Language Model" (EMNLP).

    Example:
        >>> import torch
        >>> head = DOC(hidden_size=10, layer_sizes=(4, 6), vocab_size=20, embedding_size=3, components=(2, 1))
        >>> head.log_prob(torch.randn(7, 10)).shape
        torch.Size([7, 20])
    """

    takes_all_layers = True

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        layer_sizes: Sequence[int] | None = None,
        components: int | Sequence[int] | None = None,
        context_dropout: float = 0.0,
        prior_penalty: float = 1e-3,
        bias: bool = True,
    ) -> None:
        Head.__init__(self, hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)  # fills its own slots
        check_dropout(context_dropout=context_dropout)
        self.layer_sizes = sizes = (hidden_size,) if layer_sizes is None else _counts("layer_sizes", layer_sizes)
        self.components, self.context_dropout, self.prior_penalty = components, context_dropout, prior_penalty
        self.component_counts = counts = _component_counts(components, len(sizes))
        if not sizes or min(sizes) < 1 or sum(sizes) != hidden_size:
            raise ConfigurationError(
                f"DOC needs layer_sizes that sum to hidden_size = {hidden_size}, not {list(sizes)}"
            )
        if min(counts, default=0) < 0 or not any(counts) or len(counts) > len(sizes):
            raise ConfigurationError(
                f"DOC needs components for at most as many layers as it gets, {len(sizes)}, some positive and none "
                f"negative, not {list(counts)}"
            )
        if not prior_penalty >= 0:
            raise ConfigurationError(f"prior_penalty must be at least 0, not {prior_penalty}")
        self.contexts = _LayerContexts(sizes, self.embedding_size, counts=counts, dropout=context_dropout)
        self.mixture = _LastLayerWeights(sizes[-1], components=sum(counts))

    def penalty(self, hidden: Tensor) -> Tensor:
        r"""Return :math:`λ (K - 1) \mathrm{var}_{b,j}(S_{b,j}) / \mathrm{mean}_{b,j}(S_{b,j})^2`, a scalar.

        :math:`S_{b,j} = \sum_t π_{t,b,j}` is the total weight of component j in text b of the batch; var is the
        unbiased variance of these sums. This is the penalty of the authors' code. Takase et al. 2018 print another,
        :math:`λ (\mathrm{std}_j B_j / \mathrm{mean}_j B_j)^2` with :math:`B_j = \sum_b S_{b,j}`. That is smaller: it
        has no factor K − 1, and differences between the texts of a batch cancel in it. Both depend on the texts that
        are penalized together: with ``micro_batch_size``, or under torchrun, those of one part of the batch.

        Args:
            hidden: (L, …, hidden_size), L steps of each text.
        """
        use = self.mixture(hidden).exp().sum(0)
        variance = (use - use.mean()).square().sum() / max(1, use.numel() - 1)
        return self.prior_penalty * (use.shape[-1] - 1) * variance / use.mean().square()


def _component_counts(components: int | Sequence[int] | None, layers: int) -> tuple[int, ...]:
    """Return the number of components from each layer, the last layer first."""
    if components is None:
        return COMPONENTS[:layers]
    if isinstance(components, int):
        check_positive(components=components)
    return (components,) if isinstance(components, int) else _counts("components", components)


def _counts(name: str, counts: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(counts, Sequence) or not all(isinstance(count, int) for count in counts):
        raise ConfigurationError(f"{name} must be whole numbers, not {shown(counts)}")
    return tuple(counts)


class _LayerContexts(nn.Module):
    """Context vectors of all layers that have components, the last layer's first: (…, Σ sizes) → (…, K, d).

    In training they have one dropout mask for all components.
    """

    def __init__(self, sizes: tuple[int, ...], embedding_size: int, *, counts: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        self.sizes, self.dropout = list(sizes), dropout
        self.layers = nn.ModuleDict()
        for layer, count in zip(reversed(range(len(sizes))), counts, strict=False):
            if count:
                self.layers[str(layer)] = ContextVectors(sizes[layer], embedding_size, components=count)

    def forward(self, hidden: Tensor) -> Tensor:
        states = hidden.split(self.sizes, -1)
        contexts = torch.cat([vectors(states[int(layer)]) for layer, vectors in self.layers.items()], -2)
        return contexts * locked_dropout(torch.ones_like(contexts[..., :1, :]), self.dropout, training=self.training)


class _LastLayerWeights(MixtureWeights):
    """Log mixture weights from the last layer's hidden state: (…, Σ sizes) → (…, K)."""

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden[..., -self.projection.in_features :])
