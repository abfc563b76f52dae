"""Direct output connection: a mixture of softmaxes whose components come from several layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from ..backbones.dropout import locked_dropout
from ..errors import ConfigurationError
from .base import RankBound
from .context import ContextConfig, ContextVectors, MixtureWeights
from .mixture import Mixture

COMPONENTS = (15, 5)
"""Components from the last layer and from the one below it, as in the commands of the authors' published code."""


@dataclass(frozen=True, kw_only=True)
class DOCConfig(ContextConfig):
    """Settings of `DOC`."""

    layer_sizes: Sequence[int] | None = None
    """Sizes of the layers whose hidden states come in, the first layer first; ``None`` for a single layer."""
    components: int | Sequence[int] | None = None
    """Number of components from each layer, the last layer first; layers not named give none. ``None`` takes 15 from
    the last layer and 5 from the one below it, if there is one."""
    prior_penalty: float = 1e-3
    """Weight λ of the penalty on unevenly used components, as in the authors' commands; 0 leaves it out."""

    def __post_init__(self) -> None:
        """Refuse layers and components that do not fit together."""
        super().__post_init__()
        sizes, counts = self.sizes, self.component_counts
        if not sizes or min(sizes) < 1 or sum(sizes) != self.hidden_size:
            raise ConfigurationError(
                f"DOC needs layer_sizes that sum to hidden_size = {self.hidden_size}, not {list(sizes)}"
            )
        if min(counts, default=0) < 0 or not any(counts):
            raise ConfigurationError(
                f"DOC needs components of which some are positive and none negative, not {list(counts)}"
            )
        if not self.prior_penalty >= 0:
            raise ConfigurationError(f"prior_penalty must be at least 0, not {self.prior_penalty}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Size of each layer, the first layer first."""
        return (self.hidden_size,) if self.layer_sizes is None else tuple(self.layer_sizes)

    @property
    def component_counts(self) -> tuple[int, ...]:
        """Number of components from each layer, the last layer first."""
        if self.components is None:
            return COMPONENTS[: len(self.sizes)]
        return (self.components,) if isinstance(self.components, int) else tuple(self.components)


@final
class DOC(Mixture):
    r"""A mixture of softmaxes over context vectors of several layers' hidden states.

    .. math:: P(x | c) = \sum_j π_{c,j} \mathrm{softmax}_x(h_{c,j}·w_x + b_x),
        \quad h_{c,j} = \tanh(W_j g^{n(j)}_c + b_j)

    where :math:`g^n` is the hidden state of layer n and the weights π come from the last layer's. Hidden states are
    those of all layers side by side, the first layer first: ``hidden_size`` is the sum of ``layer_sizes``.

    Dropout and `penalty` follow the authors' code, which made the published numbers. Dropout takes the same entries out
    of the context vectors of all components, at all steps of a text. The penalty differs from the printed one.

    References:
        Takase, Suzuki and Nagata 2018, "Direct Output Connection for a High-Rank Language Model" (EMNLP).

    Example:
        >>> import torch
        >>> head = DOC(hidden_size=10, layer_sizes=(4, 6), vocab_size=20, embedding_size=3, components=(2, 1))
        >>> head.log_prob(torch.randn(7, 10)).shape
        torch.Size([7, 20])
    """

    Config = DOCConfig
    config: DOCConfig
    takes_all_layers = True

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        sizes, counts = self.config.sizes, self.config.component_counts
        if len(counts) > len(sizes):
            raise ConfigurationError(
                f"DOC needs components for at most as many layers as it gets, {len(sizes)}, not {list(counts)}"
            )
        self.contexts = _LayerContexts(sizes, self.embedding_size, counts=counts, dropout=self.config.context_dropout)
        self.mixture = _LastLayerWeights(sizes[-1], components=sum(counts))
        self.function = None

    def penalty(self, hidden: Tensor) -> Tensor:
        r"""Return :math:`λ (K - 1) \mathrm{var}_{b,j}(S_{b,j}) / \mathrm{mean}_{b,j}(S_{b,j})^2`, a scalar.

        :math:`S_{b,j} = \sum_t π_{t,b,j}` is how much text b of the batch uses component j; the variance of these sums
        has their number less one in its denominator. This is the penalty of the authors' code. The paper prints
        another, :math:`λ (\mathrm{std}_j B_j / \mathrm{mean}_j B_j)^2` with :math:`B_j = \sum_b S_{b,j}`. That is far
        smaller: it has no factor K − 1, and differences between the texts of a batch cancel in it.

        Args:
            hidden: (L, …, hidden_size), L steps of each text.
        """
        use = self.mixture(hidden).exp().sum(0)
        variance = (use - use.mean()).square().sum() / max(1, use.numel() - 1)
        return self.config.prior_penalty * (use.shape[-1] - 1) * variance / use.mean().square()

    @property
    def rank_bound(self) -> RankBound:
        """None for more than one component: log Σ exp of linear functions is no linear function."""
        if sum(self.config.component_counts) == 1:
            d, bias = self.embedding_size, int(self.config.bias)
            return RankBound(d + 1 + bias, d + bias, "a mixture of one softmax is a softmax")
        return RankBound(None, None, "a mixture of softmaxes has no rank bound below min(T, M)")


class _LayerContexts(nn.Module):
    """Context vectors of all layers that have components, the last layer's first: (…, Σ sizes) → (…, K, d).

    In training they have one dropout mask for all components.
    """

    def __init__(self, sizes: tuple[int, ...], embedding_size: int, *, counts: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        self.sizes, self.dropout = list(sizes), dropout
        self.layers = nn.ModuleDict(
            {
                str(len(sizes) - place): ContextVectors(size, embedding_size, components=count)
                for place, (size, count) in enumerate(zip(reversed(sizes), counts, strict=False), start=1)
                if count
            }
        )

    def forward(self, hidden: Tensor) -> Tensor:
        states = hidden.split(self.sizes, -1)
        contexts = torch.cat([vectors(states[int(layer)]) for layer, vectors in self.layers.items()], -2)
        return contexts * locked_dropout(torch.ones_like(contexts[..., :1, :]), self.dropout, training=self.training)


class _LastLayerWeights(nn.Module):
    """Log mixture weights from the last layer's hidden state: (…, Σ sizes) → (…, K)."""

    def __init__(self, size: int, *, components: int) -> None:
        super().__init__()
        self.size, self.weights = size, MixtureWeights(size, components=components)

    def forward(self, hidden: Tensor) -> Tensor:
        log_prior: Tensor = self.weights(hidden[..., -self.size :])
        return log_prior
