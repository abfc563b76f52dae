"""Fits of a head, and of one free context vector for each distribution, by minibatches of contexts."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.checks import check_positive
from ..core.devices import exact
from ..errors import ConfigurationError
from ..heads import Head
from ..heads.blocked import blocked_loss
from .dirichlet import Targets

CURVE_POINTS = 24
"""Number of points of the loss curve, evenly spaced in the logarithm of the epoch."""


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """Length of a fit, its criterion of convergence, and its learning rates.

    Adam's learning rate falls along a half cosine over a cycle of epochs; the next cycle starts at the highest rate
    again and is twice as long (Loshchilov and Hutter 2017). A fit has converged when the divergences at the ends of two
    cycles differ by less than ``tolerance`` of the lower one, or by less than ``negligible`` nats. If a cycle ends
    higher by more than that, the fit stops without having converged. The result is that of the cycle that ended lowest.
    """

    batch: int = 1000
    """Contexts in a step, at least one block of `DirichletBlocks`."""
    first_cycle: int = 40
    """Epochs of the first cycle."""
    cycles: int = 5
    """Largest number of cycles."""
    tolerance: float = 0.01
    """Largest relative change of the Kullback-Leibler divergence between two cycles of a converged fit."""
    negligible: float = 1e-4
    """Change of the divergence, in nats, that is small enough for convergence."""
    context_rate: float = 0.3
    """Highest learning rate of the context vectors."""
    embedding_rate: float = 0.1
    """Highest learning rate of the output embeddings and, in a mixture, of its projections."""
    function_rate: float = 0.03
    """Highest learning rate of a pointwise function."""

    def __post_init__(self) -> None:
        check_positive(batch=self.batch, first_cycle=self.first_cycle, cycles=self.cycles)
        for name in ("tolerance", "negligible", "context_rate", "embedding_rate", "function_rate"):
            if not (getattr(self, name) >= 0 and math.isfinite(getattr(self, name))):
                raise ConfigurationError(f"{name} must be a number that is not negative, not {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit."""

    contexts: Tensor
    """(T, hidden_size), the context vectors."""
    curve: tuple[tuple[int, float], ...]
    """Epochs, and the mean KL(P* ‖ Q) during each, in nats."""
    epochs: int
    """Number of epochs; the last pass, which measures the gradient, is not counted."""
    steps: int
    """Number of optimizer steps."""
    gradient_norm: float | None
    """Norm of the final gradient of the mean cross entropy in all parameters; ``None`` after a divergence."""
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
    state = _State(head, targets, config, torch.Generator().manual_seed(seed))
    lowest, converged, diverged = math.inf, False, False
    for cycle in range(config.cycles):
        kl = state.cycle(config.first_cycle * 2**cycle)
        diverged = not math.isfinite(kl)
        gain = lowest - kl
        if gain > 0:
            lowest = kl
            state.keep()
        limit = max(config.tolerance * lowest, config.negligible)
        if diverged or gain <= limit:
            converged = not diverged and gain >= -limit
            break
    state.restore()
    return Fit(
        contexts=torch.cat([batch.detach() for batch in state.contexts]),
        curve=_thinned(state.curve),
        epochs=len(state.curve),
        steps=state.steps,
        gradient_norm=None if diverged else state.gradient_norm(),
        converged=converged,
        diverged=diverged,
        seconds=time.perf_counter() - started,
    )


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

    def gradient_norm(self) -> float:
        """Return the norm of the gradient of the mean cross entropy over all contexts."""
        self.optimizer.zero_grad()
        for number in range(len(self.batches)):
            self._backward(number)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        return float(nn.utils.get_total_norm(gradients)) / self.targets.blocks.contexts

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
