"""The heads that combine three slots: context vectors, a prior that mixes them, and a function of the logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, cleandoc, signature
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from .base import Head, RankBound
from .functions import LogSigmoidProduct, SoftCap, generalized_sigsoftmax
from .layers import ContextVectors, MixtureWeights
from .lms_net import MonotonicNetwork
from .plif import PLIF
from .scores import Factors, Scores


def _settings(part: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the keyword-only arguments of what fills a slot."""
    arguments = signature(part, eval_str=True).parameters
    return {name: each for name, each in arguments.items() if each.kind is each.KEYWORD_ONLY}


def _described(part: Callable[..., Any]) -> str:
    """Return the lines of a docstring's section ``Args:``."""
    return cleandoc(part.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]


def _identity() -> None:
    """Return no function of the logits."""


CONTEXTS = _settings(ContextVectors)


class Combination(Head):
    r"""K softmaxes over a function of logits: :math:`\sum_k π_{c,k}\, \mathrm{softmax}_x\, f(h_{c,k}·w_x + b_x)`.

    A subclass names what fills the slots, as in ``class MoSPLIF(Combination, components=15, function=PLIF)``: the
    default of K, and f by its class, whose keyword-only arguments become arguments of the head, with the lines of its
    ``Args:``. The context vectors' arguments are those of `ContextVectors`. With K = ``None`` there is no prior, and
    the hidden state is the context vector unless it is of another size than d or another of their arguments is given.
    A subclass with a constructor of its own passes on what it takes of these, and may then set ``function``.
    """

    mixes_contexts: ClassVar[bool] = False
    """Whether the prior mixes the K context vectors into one, before a single softmax."""
    _function: ClassVar[Callable[..., nn.Module | None]]
    __signature__: ClassVar[Signature | None]

    def __init_subclass__(
        cls, *, components: int | None = None, function: Callable[..., nn.Module | None] = _identity, **keywords: Any
    ) -> None:
        cls._function, cls.__signature__ = staticmethod(function), None
        if "__init__" not in vars(cls):
            sizes = signature(Head, eval_str=True).parameters.values()
            count = CONTEXTS["components"].replace(default=components, annotation=int | None)
            cls.__signature__ = Signature([*sizes, *(CONTEXTS | {"components": count} | _settings(function)).values()])
            lines = "\n".join(filter(None, [_described(part) for part in (Head, ContextVectors, function)]))
            cls.__doc__ = f"{cleandoc(cls.__doc__ or '')}\n\nArgs:\n{lines}\n"
        super().__init_subclass__(**keywords)

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        bias: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        if self.__signature__ is not None:
            arguments = self.__signature__.bind(hidden_size, vocab_size, **settings)
            arguments.apply_defaults()
            sizes = signature(Head).parameters
            settings = {name: value for name, value in arguments.arguments.items() if name not in sizes}
        for name, value in settings.items():
            setattr(self, name, value)
        inside = {name: settings.pop(name) for name in CONTEXTS if name in settings}
        components, d = inside.pop("components", None), self.embedding_size
        defaults = {name: CONTEXTS[name].default for name in inside}
        if components is not None or hidden_size != d or inside != defaults:
            count = 1 if components is None else components
            self.contexts = ContextVectors(hidden_size, d, components=count, **inside)
        if components is not None:
            self.mixture = MixtureWeights(hidden_size, components=components)
        self.function = self._function(**settings)

    def scores(self, hidden: Tensor) -> Scores:
        """Return the context vectors, one if the prior mixes them, and the prior; see `Head.scores`."""
        scores = super().scores(hidden)
        if not self.mixes_contexts or scores.log_prior is None:
            return scores
        (one,) = scores.factors
        prior = scores.log_prior.exp().unsqueeze(-2)
        mixed = torch.matmul(prior, one.contexts.to(prior.dtype))
        return Scores((one._replace(contexts=mixed.to(one.contexts.dtype)),), function=self.function)

    @property
    def has_linear_logits(self) -> bool:
        """Whether there is one softmax."""
        return self.mixture is None or self.mixes_contexts or self.mixture.components == 1

    @property
    def rank_bound(self) -> RankBound:
        """None for several softmaxes or a function of the logits, else d + 1, and one more for a bias.

        Log Σ exp of K linear functions is not linear (Yang et al. 2018, §2.4). A pointwise nonlinearity can raise the
        rank up to min(T, M) (Ganea et al. 2019, lemma 4). The logits have d directions, and the log-partition is one
        more, which centring removes.
        """
        if not self.has_linear_logits:
            return RankBound(None, None, "a mixture of softmaxes has no rank bound below min(T, M)")
        if self.function is not None:
            is_cap, what = isinstance(self.function, SoftCap), "a pointwise nonlinearity on the logits"
            what = f"soft-capping at {self.soft_cap:g} is a pointwise nonlinearity, which" if is_cap else what
            return RankBound(None, None, f"{what} has no rank bound below min(T, M)")
        bias = self.bias is not None
        why = (
            f"log-probabilities consist of d = {self.embedding_size} context directions"
            + (", the output bias" if bias else "")
            + " and the log-partition column; centring the rows removes the last"
        )
        return RankBound(self.embedding_size + bias + 1, self.embedding_size + bias, why)


@final
class Softmax(Combination):
    r"""A softmax over dot products with output embeddings.

    .. math:: P(x | c) = \frac{\exp(h_c·w_x + b_x)}{\sum_{x'} \exp(h_c·w_{x'} + b_{x'})}

    The hidden state is the context vector when its size is d, else ``h = tanh(W_h g + b_h)``: a `MoS` with
    one component. Gemma and others scale the logits, which then are :math:`s (h·w_x + b_x)`, or cap them softly; a
    capped softmax is no longer log-linear.

    Args:
        hidden_size: size of the hidden states that come in.
        vocab_size: M, the number of tokens.
        embedding_size: d, the size of the output embeddings; ``None`` takes ``hidden_size``.
        bias: whether every token has a bias.
        scale: s, a factor on all logits.
        soft_cap: c, the largest logit, which is :math:`c \tanh(z / c)`; ``None`` for none.

    Raises:
        ConfigurationError: for a size below one, or a scale or soft cap that is out of range.

    References:
        Yang et al. 2018, eq. 1.

    Example:
        >>> import torch
        >>> head = Softmax(hidden_size=4, vocab_size=10)
        >>> head.log_prob(torch.randn(3, 4)).exp().sum(-1).round(decimals=4).tolist()
        [1.0, 1.0, 1.0]
        >>> head.rank_bound.raw, head.rank_bound.centered
        (6, 5)
    """

    as_softmax: ClassVar[Mapping[str, Any] | None] = {}

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        bias: bool = True,
        scale: float = 1.0,
        soft_cap: float | None = None,
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size, bias=bias)
        if not 1e-30 < abs(scale) < 1e30 or (soft_cap is not None and not 1e-30 < soft_cap < 1e30):
            raise ConfigurationError(
                "a logit scale and a soft cap must have a size between 1e-30 and 1e30, and the cap must be positive, "
                f"not {scale!r} and {soft_cap!r}"
            )
        self.scale, self.soft_cap = scale, soft_cap
        self.function = None if soft_cap is None else SoftCap(soft_cap)

    @classmethod
    def of(
        cls, weight: Tensor, bias: Tensor | None = None, *, scale: float = 1.0, soft_cap: float | None = None
    ) -> Softmax:
        """Return the head that has these output embeddings, W (M, d), and biases (M,); neither is copied."""
        with torch.device("meta"):
            head = cls(weight.shape[1], weight.shape[0], bias=bias is not None, scale=scale, soft_cap=soft_cap)
        head.weight = nn.Parameter(weight, requires_grad=weight.requires_grad)
        head.bias = None if bias is None else nn.Parameter(bias, requires_grad=bias.requires_grad)
        return head.eval()

    def scores(self, hidden: Tensor) -> Scores:
        """Return the factors of the scaled logits, and the soft cap; see `Head.scores`."""
        scores = super().scores(hidden)
        if self.scale == 1:
            return scores
        contexts, bias = scores.factors[0].contexts * self.scale, self.bias
        return scores._replace(factors=(Factors(contexts, self.weight, None if bias is None else bias * self.scale),))

    def _logits_of(self, log_probs: Tensor) -> Tensor:
        return super()._logits_of(log_probs) / self.scale


@final
class MoC(Combination, components=15):
    r"""Mixture of contexts: a softmax over one context vector that is itself a mixture of K.

    .. math:: P(x | c) ∝ \exp\Big(\big(\sum_k π_{c,k} h_{c,k}\big)·w_x + b_x\Big)

    The mixture happens before the softmax, so the rank is bounded exactly as in `Softmax`.

    References:
        Yang et al. 2018, eq. 2 (§2.5).

    Example:
        >>> MoC(hidden_size=8, vocab_size=10, embedding_size=4, components=3).rank_bound.raw
        6
    """

    as_softmax: ClassVar[Mapping[str, Any] | None] = {"residual": True}
    mixes_contexts = True


@final
class MoS(Combination, components=15):
    r"""Mixture of softmaxes: the high-rank output layer of Yang et al. 2018.

    .. math:: P(x | c) = \sum_k π_{c,k} \frac{\exp(h_{c,k}·w_x + b_x)}{\sum_{x'} \exp(h_{c,k}·w_{x'} + b_{x'})}

    References:
        Yang et al. 2018, §2.4.

    Example:
        >>> import torch
        >>> head = MoS(8, 50, embedding_size=4, components=3)
        >>> loss = head.nll(torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.long))
        >>> loss.shape
        torch.Size([])
    """

    as_softmax: ClassVar[Mapping[str, Any] | None] = {"residual": True}


@final
class Sigsoftmax(Combination, function=LogSigmoidProduct):
    r"""A softmax over :math:`ss(x) = 2x - \log(1 + e^x)`: exponential times sigmoid in place of the exponential.

    .. math:: P(x | c) ∝ \exp(z_x)\, σ(z_x), \quad z_x = h_c·w_x + b_x

    References:
        Kanai et al. 2018; Ganea et al. 2019, §1, for the form ss(x).

    Example:
        >>> Sigsoftmax(hidden_size=4, vocab_size=10).rank_bound.raw is None
        True
    """


@final
class GeneralizedSigsoftmax(Combination, function=generalized_sigsoftmax):
    r"""A softmax over :math:`f(x) = k (x - c) + c - (k - 1) \log(1 + e^{x - c})` (GSS).

    .. math:: P(x | c) ∝ \exp(z_x)\, σ(z_x - c)^{k - 1}, \quad z_x = h_c·w_x + b_x

    `Sigsoftmax` is c = 0 and k = 2; k = 1 is a softmax.

    References:
        Parthiban, Mao and Inkpen 2021 (AAAI), who generalize Kanai et al. 2018.

    Example:
        >>> GeneralizedSigsoftmax(hidden_size=4, vocab_size=10, c=-1.0, k=3.0).rank_bound.raw is None
        True
    """


@final
class LMSPLIF(Combination, function=PLIF):
    r"""Linear-monotonic-softmax (LMS) with a `PLIF`: :math:`P(x | c) ∝ \exp f(h_c·w_x + b_x)`.

    References:
        Ganea et al. 2019, eq. 12 and §4; defaults are the settings its authors gave to Parthiban et al. 2021.

    Example:
        >>> LMSPLIF(hidden_size=4, vocab_size=10, knots=1000).function.slope_statistics().min > 0
        True
    """

    as_softmax: ClassVar[Mapping[str, Any] | None] = {"noise": 0.0}


@final
class LMSNet(Combination, function=MonotonicNetwork):
    r"""Linear-monotonic-softmax with a `MonotonicNetwork`: :math:`P(x | c) ∝ \exp f(h_c·w_x + b_x)`.

    References:
        Ganea et al. 2019, eq. 12 and 14: the function of its synthetic experiments.

    Example:
        >>> LMSNet(hidden_size=4, vocab_size=10, hidden_units=3).rank_bound.raw is None
        True
    """


@final
class MoSPLIF(Combination, components=15, function=PLIF):
    r"""A mixture of K softmaxes whose logits pass through one learned function, a `PLIF` f.

    .. math:: P(x | c) = \sum_k π_{c,k}\, \mathrm{softmax}_x\, f(h_{c,k}·w_x + b_x)

    References:
        Ganea et al. 2019, §5.2 and table 1, "MoS + PLIF"; eq. 12 for f.

    Example:
        >>> MoSPLIF(hidden_size=4, vocab_size=10, components=2, knots=100).function.slope_statistics().min > 0
        True
    """

    as_softmax: ClassVar[Mapping[str, Any] | None] = {"residual": True, "noise": 0.0}
