"""The share of the gradient that reaches the hidden states, against one computed from whole matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from softmax_bottleneck import gradient, heads
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.language_models import ModelOnText
from softmax_bottleneck.measure.gradients import GradientReport
from softmax_bottleneck.sources import Source, open_source
from softmax_bottleneck.spectrum.centered import orthonormal_basis


def whole_gradient(source: Source) -> NDArray[np.float64]:
    """P − onehot(y), all of it."""
    G = np.exp(np.concatenate([block.log_probs for block in source.blocks()]).astype(np.float64))
    assert source.targets is not None
    G[np.arange(len(G)), source.targets] -= 1
    return G


def through(G: NDArray[np.float64], J: NDArray[np.float64]) -> NDArray[np.float64]:
    """Project rows onto the columns of J less their means, by its singular vectors."""
    U, values, _ = np.linalg.svd(J - J.mean(0), full_matrices=False)
    return np.asarray(G @ U[:, values > 1e-6 * values[0]])


def by_jacobians(source: Source, rows: Iterable[int]) -> float:
    """The share of the gradient's norm that passes the Jacobians of torch, one context at a time."""
    G, head = whole_gradient(source), source.head
    (hidden,) = source.hidden([range(len(G))])
    squares = 0.0
    for row in rows:
        J = torch.autograd.functional.jacobian(lambda h: head.log_prob(h[None])[0], hidden[row])
        squares += float((through(G[row : row + 1], J.numpy()) ** 2).sum())
    return float(np.sqrt(squares) / np.linalg.norm(G[list(rows)]))


NOT_LOG_LINEAR = sorted(heads.REGISTRY.keys() - {"softmax", "moc"})


@pytest.mark.parametrize("name", NOT_LOG_LINEAR)
def test_other_heads_by_their_jacobian(name: str, repeatable: None) -> None:
    head = heads.build(name, hidden_size=6, vocab_size=30).double()
    source = open_source(head, hidden=torch.randn(40, 6, dtype=torch.float64), targets=torch.randint(30, (40,)))
    found = gradient(source, sample=3)
    assert (found.method, found.sampled) == ("jacobian", 3)
    assert "onto the columns of ∂ log P / ∂h at each context's hidden state h, less their means: " in str(found)
    assert found.kept == pytest.approx(by_jacobians(source, np.linspace(0, 39, 3).astype(int)), rel=1e-7)


def uniform(dimensions: int, tokens: int, targets: torch.Tensor) -> GradientReport:
    """The gradient of random output embeddings W at uniform P: h = 0, so it does not depend on W."""
    layer = torch.nn.Linear(dimensions, tokens, bias=False, dtype=torch.float64)
    torch.nn.init.normal_(layer.weight)
    return gradient(layer, hidden=torch.zeros(len(targets), dimensions).double(), targets=targets)


@pytest.mark.parametrize(("d", "M"), [(4, 40), (20, 200)])
def test_every_token_once_at_uniform_probabilities(d: int, M: int, repeatable: None) -> None:
    """G = 11ᵀ/M − I is a projection of rank M − 1, of which any W keeps d dimensions."""
    found = uniform(d, M, torch.arange(M))
    assert (found.directions, found.norm) == (d, pytest.approx(np.sqrt(M - 1)))
    assert found.kept_energy == pytest.approx(d / (M - 1), rel=1e-12)
    assert found.mean_kept_energy == pytest.approx(d / (M - 1), rel=1e-12)
    assert found.mean_kept < found.kept
    assert (found.random_kept, found.random_kept_energy) == (pytest.approx(np.sqrt(d / M)), d / M)
    assert found.outside == pytest.approx(np.sqrt(1 - d / (M - 1)), rel=1e-12)
    assert f"outside {100 * np.sqrt(1 - d / M):.2f} %" in str(found)
    assert found.ratio == pytest.approx(np.sqrt(M / (M - 1)), rel=1e-5)
    assert (found.batch, found.batch_rank.value, found.batch_rank.determinate) == (M, M - 1, True)
    assert f"{M - 1} in {M} contexts; {d} can pass" in str(found)


def test_a_random_projection_keeps_a_beta_distributed_share(repeatable: None) -> None:
    """A projection onto d random dimensions of M − 1 keeps a share Beta(d/2, (M − 1 − d)/2) of any squared norm."""
    d, M = 5, 30
    shares = [uniform(d, M, torch.tensor([3])).kept_energy for _ in range(100)]
    assert stats.kstest(shares, stats.beta(d / 2, (M - 1 - d) / 2).cdf).pvalue > 1e-3


def test_bands_means_and_batch(runs: dict[str, Path]) -> None:
    """Bands cover all contexts, means count each alike, and the batch is the first ones."""
    source = open_source(runs["softmax"], dtype="float64")
    found, G = gradient(source), whole_gradient(source)
    assert (found.batch, found.norm) == (min(256, len(G)), pytest.approx(np.linalg.norm(G), rel=1e-12))
    values = np.linalg.svd(G[: found.batch], compute_uv=False)
    assert found.batch_rank.sigma_1 == pytest.approx(values[0])
    assert found.batch_rank.value == (values > found.batch_rank.tolerance).sum()
    kept = through(G, source.head.weight.detach().double().numpy())
    shares = (kept**2).sum(1) / (G**2).sum(1)
    assert found.mean_kept_energy == pytest.approx(shares.mean(), rel=1e-9)
    W = source.head.weight.detach().double().numpy()
    U = np.linalg.svd(W - W.mean(0), full_matrices=False)[0]
    outside = G - G @ U @ U.T
    assert found.outside == pytest.approx(np.linalg.norm(outside) / np.linalg.norm(G), rel=1e-9)
    each = np.linalg.norm(outside, axis=1) / np.linalg.norm(G, axis=1)
    assert found.mean_outside == pytest.approx(each.mean(), rel=1e-9)
    assert found.mean_kept == pytest.approx(np.sqrt(shares).mean(), rel=1e-9)
    times = np.bincount(source.targets)[source.targets]
    assert sum(band.contexts for band in found.bands) == len(G)
    for band in found.bands:
        which = (times >= band.least) & (times <= band.most)
        assert band.contexts == which.sum()
        assert band.kept == pytest.approx(np.linalg.norm(kept[which]) / np.linalg.norm(G[which]), rel=1e-9)


def test_a_constant_column_is_no_direction() -> None:
    """It adds one number to all logits of a context."""
    generator = torch.Generator().manual_seed(1)
    for dtype in (torch.float32, torch.float64):
        weight = torch.randn(50, 6, generator=generator, dtype=dtype)
        weight[:, 2] = 7.3
        for scaled in (False, True):
            assert orthonormal_basis(weight, scaled=scaled)[0].shape == (50, 5)
    assert orthonormal_basis(torch.ones(50, 1))[0].shape == (50, 0)


@pytest.mark.parametrize("columns", [6, 4])
def test_the_size_of_a_column_changes_no_direction(columns: int) -> None:
    """Hidden states may make up for it."""
    weight = torch.randn(50, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight = torch.cat([weight, weight[:, :1] + weight[:, 1:2], torch.zeros(50, 1)], 1)  # and of two that add nothing
    scaled = weight * 10.0 ** -torch.arange(0, 3 * columns + 6, 3)
    bases = [orthonormal_basis(each, scaled=True) for each in (weight, scaled)]
    projectors = [basis @ basis.T for basis, _ in bases]
    assert torch.allclose(*projectors, atol=1e-9)
    assert projectors[0].trace() == pytest.approx(columns)
    for each, (basis, inverse) in zip((weight, scaled), bases, strict=True):
        assert torch.allclose((each - each.mean(0)) @ inverse, basis, atol=1e-9)


@pytest.mark.parametrize(("head", "size"), [("softmax", 5), ("moc", 7), ("softmax", 9)])
def test_both_ways_are_one(head: str, size: int, repeatable: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By W or by its Jacobians, a log-linear output layer keeps what reaches hidden states of size 7."""
    layer = heads.build(head, hidden_size=7, vocab_size=40, embedding_size=size).double()
    source = open_source(layer, hidden=torch.randn(20, 7).double(), targets=torch.randint(40, (20,)))
    assert source.factors() is not None
    by_weight = gradient(source, sample=20)
    monkeypatch.setattr(ModelOnText, "linear", lambda source, hidden: None)
    by_jacobian = gradient(source, sample=20)
    assert (by_weight.lost, by_weight.kept_energy) == (1 - by_weight.kept, pytest.approx(by_weight.kept**2))
    assert (by_weight.method, by_jacobian.method) == ("weight" if size <= 7 else "jacobian", "jacobian")
    assert by_weight.directions == by_jacobian.directions == min(size, 7)
    assert by_weight.kept == pytest.approx(by_jacobian.kept, rel=1e-6)
    assert by_weight.kept == pytest.approx(by_jacobians(source, range(20)), rel=1e-6)


@pytest.mark.parametrize("row", [0.0, 2.5])
def test_a_layer_of_equal_rows_passes_nothing(row: float) -> None:
    found = gradient(heads.Softmax.of(torch.full((12, 3), row)), hidden=torch.ones(9, 3), targets=torch.arange(9))
    assert (found.directions, found.kept, found.lost) == (0, 0.0, 1.0)
    assert "reaches the hidden states: all tokens have the same logits" in str(found)


def test_masked_tokens_and_a_model_that_is_certain() -> None:
    """A token of probability 0 leaves the measure as it is without it; where no loss is left, no gradient is lost."""
    rng = np.random.default_rng(2)
    W, H, targets = rng.standard_normal((12, 3)), rng.standard_normal((9, 3)), rng.integers(11, size=9)
    bias = np.append(np.zeros(11), -np.inf)
    masked, without = (
        gradient(heads.Softmax.of(torch.from_numpy(w), bias=torch.from_numpy(b)), hidden=H, targets=targets)
        for w, b in ((W, bias), (W[:11], bias[:11]))
    )
    assert masked.kept == pytest.approx(without.kept, rel=1e-12)
    layer = heads.Softmax.of(1e4 * torch.eye(3, dtype=torch.float64))
    assert gradient(layer, hidden=torch.eye(3).double(), targets=[0, 1, 2]).kept == 1


@pytest.mark.parametrize("size", [6.0, 10.0])
def test_targets_that_are_almost_certain(size: float, repeatable: None) -> None:
    """In float64, and p − 1 as the negative sum of all others: 1 − p is 1e-7 or 1e-12 here, and cancels in float32."""
    W = torch.randn(200, 8)
    chosen = W[torch.randint(200, (300,))]
    H = 2 * size * chosen / chosen.norm(dim=1, keepdim=True) + 0.3 * torch.randn(300, 8)
    targets = (H @ W.T).argmax(1)
    layer = torch.nn.Linear(8, 200, bias=False)
    layer.weight.data = W
    G, own = torch.softmax(H.double() @ W.double().T, 1).numpy(), (np.arange(300), targets.numpy())
    G[own] = 0
    G[own] = -G.sum(1)
    shares = np.linalg.norm(through(G, W.double().numpy()), axis=1) / np.linalg.norm(G, axis=1)
    assert gradient(layer, hidden=H, targets=targets).mean_kept == pytest.approx(shares.mean(), rel=1e-4)


def test_what_has_no_gradient(log_probs: Callable[..., NDArray[np.float64]], runs: dict[str, Path]) -> None:
    with pytest.raises(SourceError, match="the gradient needs a model, and array is only its log-probabilities"):
        gradient(log_probs())
    with pytest.raises(SourceError, match="which token came after each context, so the loss has no gradient: give"):
        gradient(torch.nn.Linear(4, 9), hidden=torch.ones(3, 4))
    with pytest.raises(ConfigurationError, match="sample must be at least 1, not 0"):
        gradient(open_source(runs["mos"]), sample=0)
