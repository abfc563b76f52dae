"""The factors from which any head computes its probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Reduction = Literal["mean", "sum", "none"]


class Factors(NamedTuple):
    """Logits as ``contexts @ weight.T + bias``: the log-linear form (Yang et al. 2018, eq. 1)."""

    contexts: Tensor
    """H, shape (…, d)."""
    weight: Tensor
    """W, shape (M, d)."""
    bias: Tensor | None
    """b, shape (M,)."""


class Scores(NamedTuple):
    r"""A mixture of softmaxes over functions of logits, the common form of all heads.

    .. math:: P(x | c) = \sum_k π_{c,k} \mathrm{softmax}_x\, f(h_{c,k}·w_x + b_x, …)
    """

    factors: tuple[Factors, ...]
    """Factors of the logits, with contexts of shape (…, K, d); d and K may differ between them."""
    log_prior: Tensor | None = None
    """log π, shape (…, K); ``None`` for a single softmax."""
    function: nn.Module | None = None
    """f: takes the logits (…, K, M) of each of ``factors`` and returns those of the softmaxes, (…, K, M);
    each row separately. ``None`` is the identity."""

    @property
    def linear(self) -> Factors | None:
        """H, W and b, (…, d), (M, d) and (M,), where the logits of one softmax are linear in H; else ``None``."""
        (one, *more) = self.factors
        if more or self.function is not None or one.contexts.shape[-2] != 1:
            return None
        return one._replace(contexts=one.contexts.squeeze(-2))

    def rows(self, chosen: Tensor | None = None) -> Scores:
        """Return the scores with all contexts in one dimension, (N, K, …); ``chosen`` selects contexts by index."""

        def flat(tensor: Tensor, last_dimensions: int) -> Tensor:
            tensor = tensor.reshape(-1, *tensor.shape[-last_dimensions:])
            return tensor if chosen is None else tensor[chosen]

        factors = tuple(one._replace(contexts=flat(one.contexts, 2)) for one in self.factors)
        log_prior = None if self.log_prior is None else flat(self.log_prior, 1)
        return Scores(factors, log_prior, self.function)


def log_prob(scores: Scores) -> Tensor:
    """Return log P in nats, (…, M), in float32 or wider."""
    total: Tensor | None = None
    for k, logits in enumerate(_components(scores)):
        term = torch.log_softmax(logits, -1)
        if scores.log_prior is not None:
            term = term + scores.log_prior[..., k : k + 1]
        total = term if total is None else _log_sum(total, term)
    assert total is not None
    return total


def widest(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which logits of ``dtype`` are normalized: float64 for float64, else float32."""
    return torch.promote_types(dtype, torch.float32)


def _log_sum(one: Tensor, other: Tensor) -> Tensor:
    """Return log(exp(one) + exp(other)); where both are −∞ the gradient is 0, while that of torch is NaN."""
    if not (one.requires_grad or other.requires_grad):
        return torch.logaddexp(one, other)
    impossible = torch.maximum(one, other) == -torch.inf
    possible = torch.logaddexp(one.masked_fill(impossible, 0.0), other.masked_fill(impossible, 0.0))
    return possible.masked_fill(impossible, -torch.inf)


def _components(scores: Scores) -> Iterator[Tensor]:
    """Yield the logits of one softmax after the other, so that the K × M logits of a context are not all in memory."""
    if len(scores.factors) > 1:
        assert scores.function is not None
        yield from scores.function(*map(_logits, scores.factors)).unbind(-2)
        return
    (factors,) = scores.factors
    for contexts in factors.contexts.unbind(-2):
        logits = _logits(factors._replace(contexts=contexts))
        yield logits if scores.function is None else scores.function(logits.unsqueeze(-2)).squeeze(-2)


def _logits(factors: Factors) -> Tensor:
    logits = F.linear(factors.contexts, factors.weight, factors.bias)
    return logits.to(widest(logits.dtype))
