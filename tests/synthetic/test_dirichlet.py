"""Samples against the closed forms of the Dirichlet distribution, and blocks against each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.measure.pairwise_kld import pairwise_kld
from softmax_bottleneck.synthetic import DirichletBlocks, expected_pairwise_kl, sample_dirichlet_log_probs


def _sample(contexts: int, vocab: int, alpha: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return sample_dirichlet_log_probs(contexts, vocab, alpha, torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("alpha", [1e-3, 0.01, 0.1, 1.0, 30.0])
def test_one_of_two_is_beta_distributed(alpha: float) -> None:
    """Kolmogorov and Smirnov on log P of the first of two tokens; both tails of a Beta(α, α) are resolved."""
    log_p = _sample(20_000, 2, alpha, torch.float64).numpy()
    # A Beta(α, α) below the smallest float has F(p) = p^α / (α B(α, α)), so compare where F is uniform.
    at = log_p[:, 0]
    lower = np.exp(alpha * at) / (alpha * special.beta(alpha, alpha))
    uniform = np.where(at < np.log(1e-9), lower, stats.beta(alpha, alpha).cdf(np.exp(np.maximum(at, -700))))
    assert stats.kstest(uniform[at < np.log(0.5)] / 0.5, "uniform").pvalue > 1e-3
    assert abs(float((at < np.log(0.5)).mean()) - 0.5) < 0.02


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0])
def test_moments_of_log_probabilities(alpha: float) -> None:
    log_p = _sample(400, 500, alpha).double()
    mean = special.digamma(alpha) - special.digamma(500 * alpha)
    error = np.sqrt(special.polygamma(1, alpha) / log_p.numel())
    assert abs(float(log_p.mean()) - mean) < 5 * error
    entropy = special.digamma(500 * alpha + 1) - special.digamma(alpha + 1)
    each = -(log_p.exp() * log_p).sum(1)
    assert abs(float(each.mean()) - entropy) < 5 * float(each.std()) / 20


@pytest.mark.parametrize(("alpha", "vocab"), [(0.1, 1000), (1.0, 100)])
def test_expected_pairwise_divergence(alpha: float, vocab: int) -> None:
    contexts = 600
    found = pairwise_kld(_sample(contexts, vocab, alpha).numpy()).kld * contexts / (contexts - 1)
    assert found == pytest.approx(expected_pairwise_kl(vocab, alpha), rel=0.02)


@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 0.01, 1e6])
def test_nothing_underflows_in_float32(alpha: float) -> None:
    log_p = _sample(200, 1000, alpha)
    assert log_p.isfinite().all()
    assert log_p.exp().sum(1).sub(1).abs().max() < 1e-5
    assert log_p.unique().numel() > 0.6 * log_p.numel() or alpha == 1e6


def test_blocks_are_a_function_of_their_number() -> None:
    small, large = DirichletBlocks(2500, 1000, 0.1, seed=7), DirichletBlocks(5000, 1000, 0.1, seed=7)
    assert [len(block) for block in small] == [1048, 1048, 404]
    assert torch.equal(small.log_probs(1), large.log_probs(1))
    assert torch.equal(small.log_probs(2), large.log_probs(2)[:404])
    assert not torch.equal(small.log_probs(0), small.log_probs(1))
    assert not torch.equal(small.log_probs(0), DirichletBlocks(2500, 1000, 0.1, seed=8).log_probs(0))
    assert [small.rows(block) for block in range(3)] == [slice(0, 1048), slice(1048, 2096), slice(2096, 2500)]


@pytest.mark.parametrize("alpha", [0.0, -1.0, 1e-7, 1e7, float("nan"), float("inf")])
def test_alpha_out_of_range(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match="alpha must lie between 1e-06 and 1e"):
        _sample(2, 2, alpha)
    with pytest.raises(ConfigurationError, match="alpha must lie between"):
        DirichletBlocks(2, 2, alpha)
