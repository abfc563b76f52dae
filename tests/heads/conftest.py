"""Small heads with every parameter drawn at random, and each head's formula written out a second time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head

SETTINGS = MappingProxyType(
    {
        "moc": {"components": 3},
        "mos": {"components": 3},
        "lms-plif": {"knots": 12, "interval": 1.5},
        "lms-net": {"hidden_units": 3, "interval": 1.5},
    }
)
"""Small settings of the heads that have their own; the interval is narrow, so that logits fall outside it too."""


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)


@pytest.fixture
def make() -> Callable[..., Head]:
    """Build a head in float64 with a random bias."""

    def make(name: str, *, hidden: int = 5, vocab: int = 7, size: int | None = 3, **settings: Any) -> Head:
        given = {**SETTINGS.get(name, {}), **settings}
        head = heads.build(name, hidden_size=hidden, vocab_size=vocab, embedding_size=size, **given).double()
        if head.bias is not None:
            nn.init.normal_(head.bias)
        return head

    return make


@pytest.fixture
def naive() -> Callable[[Head, Tensor], Tensor]:
    """Return log P by the formula as the papers print it: exponentials, sums, and one logarithm at the end."""

    def naive(head: Head, hidden: Tensor) -> Tensor:
        name = next(name for name, cls in heads.REGISTRY.items() if type(head) is cls)
        return NAIVE[name](head, hidden).log()

    return naive


def _normalized(unnormalized: Tensor) -> Tensor:
    return unnormalized / unnormalized.sum(-1, keepdim=True)


def _logits(head: Head, context: Tensor) -> Tensor:
    logits = context @ head.weight.T
    return logits if head.bias is None else logits + head.bias


def _contexts(head: Any, hidden: Tensor) -> list[Tensor]:
    """Every context vector h_k = tanh(W_k g + b_k), or the hidden state itself."""
    if head.contexts is None:
        return [hidden]
    d, linear = head.embedding_size, head.contexts.projection
    pairs = zip(linear.weight.split(d), linear.bias.split(d), strict=True)
    return [torch.tanh(hidden @ weight.T + bias) for weight, bias in pairs]


def _prior(head: Any, hidden: Tensor) -> list[Tensor]:
    weights = _normalized(torch.exp(hidden @ head.mixture.projection.weight.T))
    return [weight.unsqueeze(-1) for weight in weights.unbind(-1)]


def _softmax(head: Head, hidden: Tensor) -> Tensor:
    (context,) = _contexts(head, hidden)
    return _normalized(torch.exp(_logits(head, context)))


def _moc(head: Head, hidden: Tensor) -> Tensor:
    mixed = sum(p * h for p, h in zip(_prior(head, hidden), _contexts(head, hidden), strict=True))
    return _normalized(torch.exp(_logits(head, mixed)))


def _mos(head: Head, hidden: Tensor) -> Tensor:
    softmaxes = [_normalized(torch.exp(_logits(head, context))) for context in _contexts(head, hidden)]
    return sum(p * q for p, q in zip(_prior(head, hidden), softmaxes, strict=True))


def _sigsoftmax(head: Head, hidden: Tensor) -> Tensor:
    logits = _logits(head, *_contexts(head, hidden))
    return _normalized(torch.exp(logits) / (1 + torch.exp(-logits)))


def _lms_plif(head: Any, hidden: Tensor) -> Tensor:
    """The integral of the slopes: each piece gives its slope times the part of it that x has passed."""
    logits = _logits(head, *_contexts(head, hidden))
    v, interval = head.function.v, head.config.interval
    width = 2 * interval / len(v)
    bent = torch.full_like(logits, -interval)
    for i, slope in enumerate(torch.log(1 + torch.exp(v))):
        passed = logits + interval - i * width
        passed = passed if i == 0 else passed.clamp(min=0)
        bent = bent + slope * (passed if i == len(v) - 1 else passed.clamp(max=width))
    return _normalized(torch.exp(bent))


def _lms_net(head: Any, hidden: Tensor) -> Tensor:
    logits, f = _logits(head, *_contexts(head, hidden)), head.function
    u, v = torch.log(1 + torch.exp(f.u)), torch.log(1 + torch.exp(f.v))
    units = 1 / (1 + torch.exp(-(logits.unsqueeze(-1) * u + f.b)))
    return _normalized(torch.exp(units @ v))


NAIVE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "softmax": _softmax,
    "moc": _moc,
    "mos": _mos,
    "sigsoftmax": _sigsoftmax,
    "lms-plif": _lms_plif,
    "lms-net": _lms_net,
}
