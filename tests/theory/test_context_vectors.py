"""Best context vectors against SciPy, against theorem 2's other side, and their certificates against the truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp
from torch import Tensor

from softmax_bottleneck.synthetic import attainable, sample_dirichlet_log_probs


def _problem(n: int, vocab: int, dim: int, alpha: float, seed: int = 0, spread: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    log_p = sample_dirichlet_log_probs(n, vocab, alpha, generator, dtype=torch.float64)
    return log_p, spread * torch.randn(vocab, dim, generator=generator, dtype=torch.float64)


def _scipy(log_p: Tensor, weight: Tensor, bias: Tensor | None = None) -> float:
    W, p = weight.numpy(), log_p.exp().numpy()
    b = np.zeros(len(W)) if bias is None else bias.numpy()

    def loss(h: np.ndarray) -> tuple[float, np.ndarray]:
        logits = W @ h + b
        log_partition = logsumexp(logits)
        return log_partition - p @ logits, (np.exp(logits - log_partition) - p) @ W

    found = minimize(loss, np.zeros(W.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-10})
    return float(found.fun + p @ log_p.numpy())


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("vocab", "dim", "alpha"), [(12, 2, 1.0), (20, 3, 0.1), (30, 5, 0.3), (15, 1, 0.05)])
def test_the_minimum_is_scipys(vocab: int, dim: int, alpha: float, biased: bool) -> None:
    """And the vectors attain it."""
    log_p, W = _problem(6, vocab, dim, alpha)
    bias = torch.linspace(-1, 1, vocab, dtype=torch.float64) if biased else None
    best = attainable(log_p, W, bias=bias)
    assert best.gap.max() <= 1e-10
    log_q = torch.log_softmax(best.contexts @ W.T + (0 if bias is None else bias), 1)
    torch.testing.assert_close((log_p.exp() * (log_p - log_q)).sum(1), best.kl)
    for row, kl in zip(log_p, best.kl, strict=True):
        assert float(kl) == pytest.approx(_scipy(row, W, bias), abs=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 8), st.sampled_from([0.01, 0.1, 1.0]))
@example(300, 10, 4, 0.01)  # whose Newton direction is 2e13 long
def test_the_gap_bounds_what_is_left(seed: int, vocab: int, dim: int, alpha: float) -> None:
    """Stopped early, the true minimum lies between what is reached less the gap and what is reached."""
    log_p, W = _problem(4, vocab, dim, alpha, seed)
    final = attainable(log_p, W, tolerance=1e-9)
    assert (final.gap <= 1e-9).all()
    for steps in (0, 1, 3, 6):
        early = attainable(log_p, W, max_steps=steps)
        assert (early.kl >= final.kl - final.gap - 1e-12).all()
        assert (early.kl - early.gap <= final.kl + 1e-12).all()


def test_a_start_is_never_left_for_worse() -> None:
    log_p, W = _problem(30, 50, 5, 0.1)
    for scale in (0.1, 1.0, 100.0):
        start = scale * torch.randn(30, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        log_q = torch.log_softmax(start @ W.T, 1)
        kl = (log_p.exp() * (log_p - log_q)).sum(1)
        for steps in (0, 2, 200):
            assert (attainable(log_p, W, start=start, max_steps=steps).kl <= kl + 1e-12).all()
    # From the solution there is nothing left to do.
    best = attainable(log_p, W)
    assert attainable(log_p, W, start=best.contexts).steps <= 1


def test_sparse_targets_on_the_edge_of_what_embeddings_span() -> None:
    """At α = 0.01 the best vector is far away or at infinity: a damped step is needed, and the gap still closes."""
    log_p, W = _problem(60, 100, 50, 0.01, spread=3.0)
    best = attainable(log_p, W, tolerance=1e-7)
    assert best.gap.max() <= 1e-7
