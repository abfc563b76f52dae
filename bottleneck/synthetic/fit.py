"""Fits of a head, and of one free context vector for each distribution: Adam on minibatches, then L-BFGS."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from ..core.checks import check_positive, check_within
from ..core.devices import exact
from ..errors import ConfigurationError
from ..heads import Head
from ..heads.blocked import blocked_loss
from .dirichlet import Targets
from .lbfgs import Problem

FIRST_ROUND = 50
"""Steps of the first round of L-BFGS."""
LEAST_ROUNDS = 4
"""Rounds before the criterion is asked: with few components, early rounds cross flat places."""
CURVE_POINTS = 24
"""Number of points of the loss curve, evenly spaced in the logarithm of the epoch."""


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """Length of a fit, its criterion of convergence, and Adam's learning rates.

    Adam's learning rate falls along a half cosine over a cycle of epochs; the next cycle starts at the highest rate
    again and is twice as long (Loshchilov and Hutter 2017). Adam ends with a cycle that raised the divergence, and the
    best cycle's parameters go on. L-BFGS follows, in rounds that forget the last one's steps, each twice as long as the
    last (see `lbfgs`), in float32 until a round stops before its end. After the fourth, a fit has converged when two
    numbers are small: what the last round gained, which is as long as all before it, at most ``tolerance`` of the
    divergence; and what the gradient promises, in units of the divergence, at most ``gradient_tolerance`` of it. Where
    a function of the logits has kinks, L-BFGS ends its rounds at one, and the gradient is that of one side.
    """

    batch: int = 1000
    """Contexts in a step, at least one block of `DirichletBlocks`."""
    first_cycle: int = 40
    """Epochs of the first cycle."""
    cycles: int = 3
    """Largest number of cycles."""
    rounds: int = 7
    """Largest number of rounds of L-BFGS, the first of 50 steps; 0 for Adam alone, which never converges."""
    tolerance: float = 0.02
    """Largest gain of the last round of a converged fit, relative to the Kullback-Leibler divergence."""
    gradient_tolerance: float = 1e-3
    """Largest decrease that the gradient promises there, relative to the divergence."""
    negligible: float = 1e-3
    """Gain or promise, in nats, that is small enough for convergence."""
    context_rate: float = 0.3
    """Highest learning rate of the context vectors."""
    embedding_rate: float = 0.1
    """Highest learning rate of the output embeddings and, in a mixture, of its projections."""
    function_rate: float = 0.03
    """Highest learning rate of a pointwise function."""

    def __post_init__(self) -> None:
        check_within(0, rounds=self.rounds)
        check_positive(batch=self.batch, first_cycle=self.first_cycle, cycles=self.cycles, rounds=self.rounds + 1)
        numbers = ("tolerance", "gradient_tolerance", "negligible", "context_rate", "embedding_rate", "function_rate")
        for name in numbers:
            if not (getattr(self, name) >= 0 and math.isfinite(getattr(self, name))):
                raise ConfigurationError(f"{name} must be a number that is not negative, not {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit."""

    contexts: Tensor
    """(T, hidden_size), the context vectors."""
    curve: tuple[tuple[int, float], ...]
    """Epochs, and the mean KL(P* ‖ Q) during each, in nats; with L-BFGS the lowest so far."""
    epochs: int
    """Number of passes over the contexts."""
    steps: int
    """Number of optimizer steps."""
    gradient_norm: float | None
    """Norm of the final gradient of the mean cross entropy in all parameters; ``None`` after a divergence."""
    promised: float | None
    """Decrease of the divergence, in nats, that the gradient promises at the end; ``None`` without L-BFGS."""
    converged: bool
    """Whether the criterion of `FitConfig` was met."""
    diverged: bool
    """Whether the loss became infinite or NaN."""
    seconds: float
    """Wall-clock time."""


def fit(head: Head, targets: Targets, *, config: FitConfig | None = None, seed: int = 0) -> Fit:
    """Minimize the mean cross entropy over the head's parameters and the context vectors (Ganea et al. 2019, §5.1).

    Args:
        head: head to fit, changed in place; on the device of the targets.
        targets: P*.
        config: settings; by default `FitConfig()`.
        seed: seed of the initial context vectors, which are standard normal, and of the order of the batches.
    """
    config = config or FitConfig()
    started = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    state = _State(head, targets, config, generator)
    lowest, diverged = math.inf, False
    for cycle in range(config.cycles):
        kl = state.cycle(config.first_cycle * 2**cycle)
        diverged = not math.isfinite(kl)
        if diverged or kl >= lowest:
            break
        lowest = kl
        state.keep()
    state.restore()
    problem = Problem(head, torch.cat([batch.detach() for batch in state.contexts]), targets)
    converged = not diverged and _finish(problem, config, generator)
    lows = [(len(state.curve) + n, kl) for n, kl in enumerate(accumulate(problem.passes, min), 1)]
    return Fit(
        contexts=problem.contexts.detach(),
        curve=_thinned([*state.curve, *lows]),
        epochs=len(state.curve) + len(lows),
        steps=state.steps + problem.steps,
        gradient_norm=None if diverged else problem.gradient_norm(),
        promised=problem.promised,
        converged=converged,
        diverged=diverged,
        seconds=time.perf_counter() - started,
    )


def _finish(problem: Problem, config: FitConfig, generator: torch.Generator) -> bool:
    """Take rounds of L-BFGS until the criterion of `FitConfig` is met; return whether it was."""
    promised, dtype = problem.renew(generator) if config.rounds else math.nan, torch.float32
    for number in range(config.rounds):
        if not math.isfinite(promised):
            break
        steps, taken = FIRST_ROUND * 2**number, problem.steps
        before, kl = problem.minimize(steps, dtype)
        promised = problem.renew(generator)
        is_slow = before - kl <= max(config.tolerance * kl, config.negligible)
        is_flat = promised <= max(config.gradient_tolerance * kl, config.negligible)
        if dtype is torch.float32 and problem.steps - taken < steps:
            dtype = torch.float64  # what stopped the round may be rounding
        elif number >= LEAST_ROUNDS - 1 and is_slow and is_flat:
            return True
    return False


class _State:
    """Parameters, their optimizer and the order of the batches."""

    def __init__(self, head: Head, targets: Targets, config: FitConfig, generator: torch.Generator) -> None:
        self.head, self.targets, self.generator = head, targets, generator
        self.batches = targets.batches(config.batch)
        device = head.weight.device
        # One tensor for each batch: Adam skips tensors without a gradient and keeps their moments.
        self.contexts = [
            nn.Parameter(torch.randn(targets.rows(batch), head.hidden_size, generator=generator).to(device))
            for batch in self.batches
        ]
        named = dict(head.named_parameters())
        function = [parameter for name, parameter in named.items() if name.startswith("function.")]
        others = [parameter for name, parameter in named.items() if not name.startswith("function.")]
        rates = [config.context_rate, config.embedding_rate, config.function_rate]
        groups = zip([self.contexts, others, function], rates, strict=True)
        self.optimizer = torch.optim.Adam(
            [{"params": parameters, "highest": rate} for parameters, rate in groups if parameters]
        )
        self.parameters = [*self.contexts, *head.parameters()]
        self.best: list[Tensor] = []
        self.steps = 0
        self.curve: list[tuple[int, float]] = []

    def cycle(self, length: int) -> float:
        """Run one cycle of epochs and return the mean divergence during the last; stop when it is not finite."""
        kl = math.nan
        for epoch in range(length):
            kl = self.epoch(0.5 * (1 + math.cos(math.pi * epoch / length)))
            if not math.isfinite(kl):
                break
        return kl

    def keep(self) -> None:
        """Keep a copy of the parameters."""
        self.best = [parameter.detach().clone() for parameter in self.parameters]

    def restore(self) -> None:
        """Restore the parameters that were kept last, if any."""
        with torch.no_grad():
            for parameter, best in zip(self.parameters, self.best, strict=False):
                parameter.copy_(best)

    def epoch(self, share: float) -> float:
        """Take a step on every batch at ``share`` of the highest learning rates; return the epoch's mean divergence."""
        for group in self.optimizer.param_groups:
            group["lr"] = share * group["highest"]
        total = 0.0
        for number in torch.randperm(len(self.batches), generator=self.generator).tolist():
            self.optimizer.zero_grad()
            total += self._backward(number)
            if not math.isfinite(total):
                break
            self.optimizer.step()
            self.steps += 1
        kl = total / self.targets.blocks.contexts - self.targets.mean_entropy
        self.curve.append((len(self.curve) + 1, kl))
        return kl

    def _backward(self, number: int) -> float:
        """Return the cross entropy of one batch, and add its gradients."""
        contexts = self.contexts[number]
        total: Any = 0.0
        gradients = []
        parts = contexts.split(self.targets.blocks.rows_at_once)
        for block, rows in zip(self.batches[number], parts, strict=True):
            hidden = rows.detach().requires_grad_()
            loss = blocked_loss(self.head.scores(hidden), self.targets.probabilities(block), reduction="sum")
            loss.backward()
            total += exact(loss.detach())
            gradients.append(hidden.grad if hidden.grad is not None else torch.zeros_like(hidden))
        contexts.grad = torch.cat(gradients)
        return float(total)


def _thinned(curve: list[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return the first and last epoch and others at equal ratios between them, without those that are not finite."""
    last = len(curve)
    shown = {round(last ** (point / (CURVE_POINTS - 1))) for point in range(CURVE_POINTS)}
    return tuple((epoch, kl) for epoch, kl in curve if epoch in shown and math.isfinite(kl))
