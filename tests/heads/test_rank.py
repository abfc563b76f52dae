"""The rank of each head's log-probabilities on random weights, by NumPy, against what `rank_bound` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from softmax_bottleneck import heads
from softmax_bottleneck.heads import Head

D, M, T = 4, 40, 60


def _ranks(head: Head, hidden_size: int) -> tuple[int, int]:
    with torch.no_grad():
        head.weight.mul_(3)  # logits far from flat, so that no direction hides below the tolerance
        matrix = head.log_prob(3 * torch.randn(T, hidden_size, dtype=torch.float64)).numpy()
    return _rank(matrix), _rank(matrix - matrix.mean(1, keepdims=True))


def _rank(matrix: Any) -> int:
    """Directions above 10⁻⁹ of the largest: roundoff leaves some 10⁻¹⁵, the smallest true one here over 10⁻⁶."""
    return int(np.linalg.matrix_rank(matrix, tol=1e-9 * np.linalg.norm(matrix, 2)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("hidden", [D, 9])
@pytest.mark.parametrize(
    ("name", "settings"), [("softmax", {}), ("moc", {"components": 3}), ("mos", {"components": 1})]
)
def test_log_linear_heads_are_exactly_at_their_bound(
    name: str, settings: dict[str, int], hidden: int, bias: bool, make: Callable[..., Head]
) -> None:
    head = make(name, hidden=hidden, vocab=M, size=D, bias=bias, **settings)
    assert (head.rank_bound.raw, head.rank_bound.centered) == (D + 1 + bias, D + bias)
    assert _ranks(head, hidden) == (D + 1 + bias, D + bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mos", {"components": 2}),
        ("sigsoftmax", {}),
        ("gss", {}),
        ("lms-plif", {"knots": 1000, "interval": 20.0}),
        ("lms-net", {}),
        ("mos-plif", {"knots": 1000, "interval": 20.0}),
        ("doc", {}),
        ("mixtape", {}),
    ],
)
def test_the_others_are_not_bounded(name: str, settings: dict[str, Any], bias: bool, make: Callable[..., Head]) -> None:
    head = make(name, hidden=9, vocab=M, size=D, bias=bias, **settings)
    assert head.rank_bound.raw is None
    assert head.rank_bound.centered is None
    raw, centered = _ranks(head, 9)
    assert raw > 2 * (D + 2)
    assert centered > 2 * (D + 2)


@pytest.mark.parametrize("name", heads.REGISTRY)
def test_the_bound_says_why(name: str, make: Callable[..., Head]) -> None:
    bound = make(name).rank_bound
    assert (bound.raw is None) == (bound.centered is None) == ("no rank bound" in bound.why)
