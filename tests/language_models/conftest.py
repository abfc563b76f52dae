"""The formula of an LSTM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def lstm(inputs: Iterable[Tensor], weights: Sequence[Tensor], h: Any = None, c: Any = None) -> tuple[Tensor, Tensor]:
    """Hochreiter and Schmidhuber's cell with a forget gate, gates in torch's order i, f, g, o; outputs and last c."""
    W, U, a, b = weights
    outputs = []
    for x in inputs:
        h = x.new_zeros(*x.shape[:-1], U.shape[1]) if h is None else h
        c = torch.zeros_like(h) if c is None else c
        i, f, g, o = (x @ W.T + a + h @ U.T + b).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs), c
