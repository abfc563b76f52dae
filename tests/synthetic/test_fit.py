"""What fits come to, against what is known beforehand."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from softmax_bottleneck.synthetic import DirichletBlocks, FitConfig, Targets, agreement, attainable, dirichlet, fit
from softmax_bottleneck.synthetic.lbfgs import Problem
from softmax_bottleneck.synthetic.metrics import normalized, reachable
from softmax_bottleneck.synthetic.models import MODELS, build

SHORT = FitConfig(first_cycle=20, cycles=2, rounds=2)


def test_targets_hold_no_subnormal_number() -> None:
    """They make the pass at α = 0.01 twice as long, and no sum over a row sees them."""
    blocks = DirichletBlocks(50, 400, 0.01)
    expected, tiny = blocks.log_probs(0).double().exp(), torch.finfo(torch.float32).tiny
    assert ((expected > 1e-45) & (expected < tiny)).double().mean() > 0.03
    for max_memory in (0, 1 << 20):
        found = Targets(blocks, max_memory=max_memory).probabilities(0)
        assert found[found > 0].min() >= tiny
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=tiny)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_learns(model: str) -> None:
    blocks = DirichletBlocks(60, 30, 0.1)
    head = build(model, vocab=30, dim=4, seed=0)
    # No biases (eq. 11 for MoS): at the context vector zero all tokens are equally likely.
    torch.testing.assert_close(head.log_prob(torch.zeros(1, 4)), torch.full((1, 30), -math.log(30)))
    found = fit(head, Targets(blocks), config=SHORT)
    uniform = math.log(30) - agreement(head, found.contexts, blocks).entropy
    assert agreement(head, found.contexts, blocks).kl < 0.6 * uniform
    assert found.epochs > found.steps > 60
    assert (found.curve[0][0], found.curve[-1][0]) == (1, found.epochs)
    assert not found.diverged
    assert found.promised is not None
    assert found.promised < 0.05
    blocks = DirichletBlocks(3, 1, 0.1)  # one token leaves nothing to fit
    head = build(model, vocab=1, dim=1, seed=0)
    found = fit(head, Targets(blocks), config=FitConfig(cycles=1, rounds=4))
    assert found.converged
    assert agreement(head, found.contexts, blocks).kl == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("cycles", [1, 3])
def test_as_many_dimensions_as_tokens_fit_exactly(seed: int, cycles: int) -> None:
    """P* of float32 does not sum to one: nothing but a constant on all logits would lower the divergence further."""
    blocks = DirichletBlocks(20, 3, 0.1, seed)
    found = fit(head := build("softmax", vocab=3, dim=3, seed=seed), Targets(blocks), config=FitConfig(cycles=cycles))
    assert not found.diverged
    assert min(value for _, value in found.curve) > -1e-6
    assert 0 <= agreement(head, found.contexts, blocks).kl < 1e-6


def test_a_fit_is_never_better_than_what_is_attainable() -> None:
    blocks = DirichletBlocks(80, 40, 0.1)
    head = build("softmax", vocab=40, dim=3, seed=0)
    for epochs in (1, 80):
        found = fit(head, Targets(blocks), config=FitConfig(first_cycle=epochs, cycles=1, rounds=0))
        log_p = normalized(blocks.log_probs(0))
        log_q = torch.log_softmax(found.contexts.double() @ head.weight.detach().double().T, 1)
        fitted = (log_p.exp() * (log_p - log_q)).sum(1)
        best = attainable(log_p, head.weight.detach())
        assert (best.kl <= fitted + 1e-12).all()
        summary = reachable(head, found.contexts, blocks)
        assert summary is not None
        assert summary["kl"] <= summary["fitted_kl"]
        assert summary["fitted_kl"] == pytest.approx(float(fitted.mean()))
        assert summary["largest_gap"] <= 1e-8
        assert summary["kl"] == pytest.approx(float(best.kl.mean()), abs=1e-8)
    assert summary["contexts"] == 80
    assert reachable(build("lms", vocab=40, dim=3, seed=0), found.contexts, blocks) is None  # only a softmax has it


def test_the_same_seed_gives_the_same_fit_from_targets_kept_or_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet, "BLOCK_ENTRIES", 5000)
    blocks = DirichletBlocks(120, 100, 0.1)
    kept, anew = Targets(blocks), Targets(blocks, max_memory=1000)
    assert (kept.cached, anew.cached) == (True, False)
    assert kept.mean_entropy == anew.mean_entropy
    fits = []
    for targets, seed in ((kept, 0), (anew, 0), (kept, 4)):
        head = build("mos", vocab=100, dim=2, seed=seed)
        fits.append(fit(head, targets, config=FitConfig(batch=40, first_cycle=2, cycles=1, rounds=1), seed=seed))
    assert fits[0].curve == fits[1].curve != fits[2].curve
    assert torch.equal(fits[0].contexts, fits[1].contexts)


PEAK = """
import resource, sys
from softmax_bottleneck.synthetic import DirichletBlocks, FitConfig, Targets, agreement, fit
from softmax_bottleneck.synthetic.models import build
for contexts in (210, 2100):
    blocks = DirichletBlocks(contexts, 5000, 0.1)
    head = build("softmax", vocab=5000, dim=2, seed=0)
    found = fit(head, Targets(blocks, max_memory=1 << 20), config=FitConfig(first_cycle=1, cycles=1, rounds=0))
    agreement(head, found.contexts, blocks)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_contexts_times_vocabulary() -> None:
    """Ten times the contexts: the distributions alone would be 38 MB more."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, check=True)
    one, many = map(int, done.stdout.split())
    assert many - one < 22 << 10  # KiB


@pytest.mark.filterwarnings("error")
def test_a_divergence_is_reported() -> None:
    head = build("softmax", vocab=20, dim=2, seed=0)
    rates = {"context_rate": 1e30, "embedding_rate": 1e30}
    found = fit(head, Targets(DirichletBlocks(50, 20, 0.1)), config=FitConfig(**rates))
    assert found.diverged
    assert not found.converged
    assert found.gradient_norm is None
    assert all(math.isfinite(kl) for _, kl in found.curve)


@pytest.mark.parametrize("model", ["softmax", "sigsoftmax", "lms"])
def test_a_converged_fit_is_at_a_stationary_point(model: str) -> None:
    """A much longer fit gains little, and Adam alone ends higher and does not say that it converged."""
    targets = Targets(DirichletBlocks(60, 20, 0.1))
    ended = {}
    for rounds, strict in ((0, {}), (7, {}), (6, {"tolerance": 0.0, "gradient_tolerance": 0.0, "negligible": 0.0})):
        head = build(model, vocab=20, dim=3, seed=0)
        found = fit(head, targets, config=FitConfig(cycles=2, rounds=rounds, **strict))
        ended[rounds, bool(strict)] = agreement(head, found.contexts, targets.blocks).kl, found
    (adam, begun), (kl, done), (least, _) = ended.values()
    assert (begun.converged, begun.promised, done.converged) == (False, None, True)
    assert least <= kl * (1 + 1e-9) < adam
    assert kl - least <= 0.03 * kl
    assert done.promised is not None
    assert done.promised <= 1e-3 * max(kl, 1)


def test_a_round_that_float32_stops_is_continued_in_float64() -> None:
    """Rounds in float32 alone stop after some 350 steps, at 0.580 nats: more than a converged fit may still gain."""
    targets = Targets(DirichletBlocks(100, 20, 0.1))
    head = build("sigsoftmax", vocab=20, dim=4, seed=0)
    problem = Problem(head, fit(head, targets, config=FitConfig(rounds=0)).contexts, targets)
    for number in range(5):
        problem.renew(torch.Generator().manual_seed(0))
        problem.minimize(50 * 2**number, torch.float64)
    found = fit(build("sigsoftmax", vocab=20, dim=4, seed=0), targets)
    assert found.converged
    assert found.curve[-1][1] == pytest.approx(problem.divergence(), rel=5e-3)


def test_coordinates_have_unit_curvature() -> None:
    """A Newton step of the context vectors alone takes away what their gradient promises."""
    targets = Targets(DirichletBlocks(40, 20, 0.1))
    head = build("softmax", vocab=20, dim=3, seed=0)
    found = fit(head, targets, config=FitConfig(cycles=2, rounds=0))
    head.requires_grad_(False)
    problem = Problem(head, found.contexts + 0.01, targets)
    promised, kl = problem.renew(torch.Generator().manual_seed(0)), problem.passes[-1]
    gain = kl - float(attainable(normalized(targets.blocks.log_probs(0)), head.weight).kl.mean())
    assert promised == pytest.approx(gain, rel=0.3)
