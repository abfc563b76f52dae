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
@pytest.mark.parametrize("name", heads.REGISTRY)
def test_ranks_and_bounds(name: str, bias: bool, make: Callable[..., Head]) -> None:
    """Log-linear heads are exactly at their bound, the others have none."""
    wide = {"knots": 1000, "interval": 20.0} if "plif" in name else {}
    cases = [(name, D, wide), (name, 9, wide), *([("mos", 9, {"components": 1})] if name == "mos" else [])]
    for case, hidden, settings in cases:
        head = make(case, hidden=hidden, vocab=M, size=D, bias=bias, **settings)
        bound, ranks = head.rank_bound, _ranks(head, hidden)
        if isinstance(head, heads.LogLinear) or settings.get("components") == 1:
            assert (bound.raw, bound.centered) == ranks == (D + 1 + bias, D + bias)
        else:
            assert bound.raw is bound.centered is None
            assert "no rank bound" in bound.why
            assert min(ranks) > 2 * (D + 2)
