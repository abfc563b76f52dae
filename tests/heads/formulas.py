"""Each head's formula, written out a second time: exponentials, sums, and one logarithm at the end.

A head ``my-head`` has the function ``my_head(head, hidden)`` here, which returns P, (…, M), and an entry in `SETTINGS`
where its defaults are too large for a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

SETTINGS: dict[str, dict[str, Any]] = {
    "moc": {"components": 3},
    "mos": {"components": 3},
    "lms-plif": {"knots": 12, "interval": 1.5},
    "lms-net": {"hidden_units": 3, "interval": 1.5},
    "mos-plif": {"components": 3, "knots": 12, "interval": 1.5},
    "doc": {"components": (2, 1)},
    "mixtape": {"components": 4, "gate_size": 2},
}


def formula(name: str) -> Callable[[Any, Tensor], Tensor]:
    """Return the formula of a head; a missing one fails the test that asks."""
    function = globals().get(name.replace("-", "_"))
    if function is None:
        pytest.fail(f"the head {name!r} has no formula to be tested against: write one in {__file__}")
    return function  # type: ignore[no-any-return]


def softmax(head: Any, hidden: Tensor) -> Tensor:
    return _mixture(head, hidden, torch.exp)


def moc(head: Any, hidden: Tensor) -> Tensor:
    mixed = sum(p * h for p, h in zip(_weights(head.mixture, hidden), _contexts(head, hidden), strict=True))
    return _normalized(torch.exp(_logits_of(head, mixed)))


def sigsoftmax(head: Any, hidden: Tensor) -> Tensor:
    return _mixture(head, hidden, lambda logits: torch.exp(logits) / (1 + torch.exp(-logits)))


def gss(head: Any, hidden: Tensor) -> Tensor:
    c, k = head.c, head.k
    return _mixture(head, hidden, lambda logits: torch.exp(logits) * (1 / (1 + torch.exp(c - logits))) ** (k - 1))


def lms_plif(head: Any, hidden: Tensor) -> Tensor:
    return _mixture(head, hidden, lambda logits: torch.exp(_integrated(head, logits)))


def lms_net(head: Any, hidden: Tensor) -> Tensor:
    f = head.function
    u, v = torch.log(1 + torch.exp(f.u)), torch.log(1 + torch.exp(f.v))
    return _mixture(head, hidden, lambda logits: torch.exp(1 / (1 + torch.exp(-(logits.unsqueeze(-1) * u + f.b))) @ v))


mos, mos_plif = softmax, lms_plif


def doc(head: Any, hidden: Tensor) -> Tensor:
    """The components of the last layer first; the weights are of the last layer."""
    layers = hidden.split(head.layer_sizes, -1)
    parts = head.contexts.layers
    contexts = [each for key in sorted(parts, reverse=True) for each in _vectors(parts[key], layers[int(key)])]
    softmaxes = [_normalized(torch.exp(_logits_of(head, context))) for context in contexts]
    return sum(p * q for p, q in zip(_weights(head.mixture, layers[-1]), softmaxes, strict=True))


def mixtape(head: Any, hidden: Tensor) -> Tensor:
    """The weights of the leaves below each gate, and w_x times each token's own mixture of the context vectors."""
    scalars, b = hidden @ head.gate_scalars.weight.T, head.function.bias
    leaves = [torch.ones(())]
    for i, vector in enumerate(_vectors(head.gate_vectors, hidden)):
        gate = 1 / (1 + torch.exp(-(vector @ head.gate_weight.T + scalars[..., i : i + 1] + b[i])))
        above = leaves.pop(0)
        leaves += [above * gate, above * (1 - gate)]
    mixed = sum(p.unsqueeze(-1) * h.unsqueeze(-2) for p, h in zip(leaves, _contexts(head, hidden), strict=True))
    logits = (mixed * head.weight).sum(-1)
    return _normalized(torch.exp(logits if head.bias is None else logits + head.bias))


def _normalized(unnormalized: Tensor) -> Tensor:
    return unnormalized / unnormalized.sum(-1, keepdim=True)


def _logits_of(head: Any, context: Tensor) -> Tensor:
    logits = context @ head.weight.T
    return logits if head.bias is None else logits + head.bias


def _mixture(head: Any, hidden: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The mixture of what the function makes of the components' logits, each normalized."""
    parts = [_normalized(function(_logits_of(head, context))) for context in _contexts(head, hidden)]
    weights = [1.0] if head.mixture is None else _weights(head.mixture, hidden)
    return sum(p * part for p, part in zip(weights, parts, strict=True))


def _contexts(head: Any, hidden: Tensor) -> list[Tensor]:
    """Every context vector of the head, or the hidden state itself."""
    return [hidden] if head.contexts is None else _vectors(head.contexts, hidden)


def _vectors(made: Any, hidden: Tensor) -> list[Tensor]:
    """h_k = tanh(W_k g + b_k); residual ones are g + U_k V g + b_k, or g + U_k g + b_k."""
    d, linear = made.embedding_size, made.projection
    reduced = hidden if made.reduction is None else hidden @ made.reduction.weight.T
    pairs = zip(linear.weight.split(d), linear.bias.split(d), strict=True)
    vectors = [reduced @ weight.T + bias for weight, bias in pairs]
    return [hidden + vector if made.residual else torch.tanh(vector) for vector in vectors]


def _weights(made: Any, hidden: Tensor) -> list[Tensor]:
    weights = _normalized(torch.exp(hidden @ made.projection.weight.T))
    return [weight.unsqueeze(-1) for weight in weights.unbind(-1)]


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
