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
        "mos-plif": {"components": 3, "knots": 12, "interval": 1.5},
        "doc": {"components": (2, 1)},
        "mixtape": {"components": 4, "gate_size": 2},
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
    """Build a head in float64 with random biases."""

    def make(name: str, *, hidden: int = 5, vocab: int = 7, size: int | None = 3, **settings: Any) -> Head:
        layers = {"layer_sizes": (hidden // 2, hidden - hidden // 2)} if name == "doc" else {}
        given = {**layers, **SETTINGS.get(name, {}), **settings}
        head = heads.build(name, hidden_size=hidden, vocab_size=vocab, embedding_size=size, **given).double()
        for key, parameter in head.named_parameters():
            if key in ("bias", "function.bias"):  # they start at zero, which would hide them
                nn.init.normal_(parameter)
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
    """Every context vector of the head, or the hidden state itself."""
    return [hidden] if head.contexts is None else _vectors(head.contexts, hidden)


def _vectors(made: Any, hidden: Tensor) -> list[Tensor]:
    """h_k = tanh(W_k g + b_k)."""
    d, linear = made.embedding_size, made.projection
    pairs = zip(linear.weight.split(d), linear.bias.split(d), strict=True)
    return [torch.tanh(hidden @ weight.T + bias) for weight, bias in pairs]


def _prior(head: Any, hidden: Tensor) -> list[Tensor]:
    return _weights(head.mixture, hidden)


def _weights(made: Any, hidden: Tensor) -> list[Tensor]:
    weights = _normalized(torch.exp(hidden @ made.projection.weight.T))
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


def _gss(head: Any, hidden: Tensor) -> Tensor:
    logits, c, k = _logits(head, *_contexts(head, hidden)), head.c, head.k
    return _normalized(torch.exp(logits) * (1 / (1 + torch.exp(c - logits))) ** (k - 1))


def _lms_plif(head: Any, hidden: Tensor) -> Tensor:
    return _normalized(torch.exp(_integrated(head, _logits(head, *_contexts(head, hidden)))))


def _mos_plif(head: Any, hidden: Tensor) -> Tensor:
    bent = [_integrated(head, _logits(head, context)) for context in _contexts(head, hidden)]
    return sum(p * _normalized(torch.exp(part)) for p, part in zip(_prior(head, hidden), bent, strict=True))


def _integrated(head: Any, logits: Tensor) -> Tensor:
    """The integral of the slopes: each piece gives its slope times the part of it that x has passed."""
    v, interval = head.function.v, head.interval
    width = 2 * interval / len(v)
    bent = torch.full_like(logits, -interval)
    for i, slope in enumerate(torch.log(1 + torch.exp(v))):
        passed = logits + interval - i * width
        passed = passed if i == 0 else passed.clamp(min=0)
        bent = bent + slope * (passed if i == len(v) - 1 else passed.clamp(max=width))
    return bent


def _lms_net(head: Any, hidden: Tensor) -> Tensor:
    logits, f = _logits(head, *_contexts(head, hidden)), head.function
    u, v = torch.log(1 + torch.exp(f.u)), torch.log(1 + torch.exp(f.v))
    units = 1 / (1 + torch.exp(-(logits.unsqueeze(-1) * u + f.b)))
    return _normalized(torch.exp(units @ v))


def _doc(head: Any, hidden: Tensor) -> Tensor:
    """Two components from the last layer, one from the first, and the weights from the last."""
    first, last = hidden.split(head.layer_sizes, -1)
    contexts = [*_vectors(head.contexts.layers["1"], last), *_vectors(head.contexts.layers["0"], first)]
    assert len(contexts) == 3
    softmaxes = [_normalized(torch.exp(_logits(head, context))) for context in contexts]
    return sum(p * q for p, q in zip(_weights(head.mixture, last), softmaxes, strict=True))


def _mixtape(head: Any, hidden: Tensor) -> Tensor:
    """The four leaves' weights written out, and w_x times each token's own mixture of the context vectors."""
    scalars, b = hidden @ head.gate_scalars.weight.T, head.function.bias
    one, two, three = (
        1 / (1 + torch.exp(-(vector @ head.gate_weight.T + scalars[..., i : i + 1] + b[i])))
        for i, vector in enumerate(_vectors(head.gate_vectors, hidden))
    )
    leaves = [one * two, one * (1 - two), (1 - one) * three, (1 - one) * (1 - three)]
    mixed = sum(p.unsqueeze(-1) * h.unsqueeze(-2) for p, h in zip(leaves, _contexts(head, hidden), strict=True))
    logits = (mixed * head.weight).sum(-1)
    return _normalized(torch.exp(logits if head.bias is None else logits + head.bias))


NAIVE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "softmax": _softmax,
    "moc": _moc,
    "mos": _mos,
    "sigsoftmax": _sigsoftmax,
    "lms-plif": _lms_plif,
    "lms-net": _lms_net,
    "gss": _gss,
    "mos-plif": _mos_plif,
    "doc": _doc,
    "mixtape": _mixtape,
}
