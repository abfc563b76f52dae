"""Small heads with every parameter drawn at random, and each head's formula from ``formulas.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from formulas import SETTINGS, formula
from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head


@pytest.fixture(autouse=True)
def _repeatable(repeatable: None) -> None:
    """Repeat random numbers in every test of this folder."""


@pytest.fixture
def make() -> Callable[..., Head]:
    """Build a head in float64 with random biases."""

    def make(name: str, *, hidden: int = 5, vocab: int = 7, size: int | None = 3, **settings: Any) -> Head:
        layers = {"layer_sizes": (hidden // 2, hidden - hidden // 2)} if name == "doc" else {}
        given = {**layers, **SETTINGS.get(name, {}), **settings}
        head = heads.build(name, hidden_size=hidden, vocab_size=vocab, embedding_size=size, **given).double()
        for parameter in head.parameters():
            if not parameter.any():  # what starts at zero would be hidden
                nn.init.normal_(parameter)
        return head

    return make


@pytest.fixture
def naive() -> Callable[[Head, Tensor], Tensor]:
    """Return log P by the formula as the papers print it: exponentials, sums, and one logarithm at the end."""

    def naive(head: Head, hidden: Tensor) -> Tensor:
        name = next(name for name, cls in heads.REGISTRY.items() if type(head) is cls)
        return formula(name)(head, hidden).log()

    return naive


class Watching(TorchDispatchMode):
    """Show every operation of torch, its arguments, and each tensor that it returns to a function."""

    def __init__(self, see: Callable[[Any, Any, Tensor], object]) -> None:
        super().__init__()
        self.see = see

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, Tensor):
                self.see(operation, args, each)
        return result
