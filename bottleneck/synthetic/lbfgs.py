r"""The second part of a fit: L-BFGS, in coordinates in which the divergence has nearly unit curvature.

The coordinates y of a block of parameters x = x₀ + y R have :math:`(R^T R)^{-1}` near the block's curvature. With them
:math:`\frac12 \|∇_y\|^2` is the decrease, in nats, that a damped Newton step of the blocks promises. The curvatures are

- for each context vector its Fisher information :math:`J^T \mathrm{diag}(q) J`, with J the derivative of log q;
- for the embeddings the Kronecker product of the second moment of the context vectors they meet and the mean of
  :math:`q_x (1 - q_x)`; for a projection, the second moment of its inputs;
- for each parameter as a whole one factor more, measured along a random direction.

Coordinates, curvatures and the decrease that the gradient promises are computed in float64. The steps between them are
taken in float32 at half the time and to the same divergence: rounding changes it by some 10⁻⁷ nats, a step by more.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core.devices import exact, exact_device
from ..core.full_precision import full_precision
from ..heads import Head
from ..heads.blocked import blocked_loss
from .dirichlet import Targets

HISTORY = 30
"""Pairs of steps and gradients that L-BFGS keeps."""
DAMPING, MIXTURE_DAMPING = 1e-2, 1.0
"""Added to each curvature, as a share of its mean; the latter to that of a mixture's context vectors, whose divergence
is less like its second-order model: 3,150 steps of MoS then end up to 10 % lower."""
DIFFERENCE = 1e-6
"""Step of a difference quotient, relative to the largest entry: half the digits of float64 and some to spare."""
PROBE = 1e-4
"""Length of the two steps that measure a curvature, relative to all parameters."""
LEAST_CURVATURE = 1e-12
"""Curvature of a direction that is flat: its step stays finite."""
WORK_ENTRIES = 1 << 22
"""Derivatives of log q in memory at a time."""


class Block(NamedTuple):
    """The coordinates of one parameter: rows x = x₀ + scale · y R."""

    root: Tensor | None
    """R, (d, d) for all rows or (n, d, d) for each; ``None`` for the identity."""
    scale: Tensor | float = 1.0
    """Scalar, or (n, 1)."""

    def step(self, y: Tensor) -> Tensor:
        """Return scale · y R."""
        return self._times(y, self.root)

    def to(self, dtype: torch.dtype) -> Block:
        """Return the same coordinates in another type."""
        root, scale = self
        return Block(None if root is None else root.to(dtype), scale.to(dtype) if isinstance(scale, Tensor) else scale)

    def gradient(self, gradient: Tensor) -> Tensor:
        """Return the gradient in y from that in x."""
        return self._times(gradient, None if self.root is None else self.root.mT)

    def _times(self, rows: Tensor, root: Tensor | None) -> Tensor:
        if root is not None:
            rows = rows @ root if root.ndim == 2 else torch.bmm(rows.unsqueeze(1), root).squeeze(1)
        return self.scale * rows


class Problem:
    """The mean KL(P* ‖ Q) as a function of a head's parameters and the context vectors, in float64 between rounds.

    Args:
        head: head; it becomes one of float64 on its `exact_device`.
        contexts: (T, hidden_size) initial context vectors.
        targets: P*.
    """

    def __init__(self, head: Head, contexts: Tensor, targets: Targets) -> None:
        self.head, self.contexts, self.targets = head.to(exact_device(contexts.device)), exact(contexts), targets
        self.blocks: list[Block] = []
        self.convert(torch.float64)
        self.passes: list[float] = []
        """The divergence in each pass, in nats."""
        self.steps = 0
        self.promised: float | None = None
        """Decrease that the gradient promises in the latest coordinates, in nats."""

    def convert(self, dtype: torch.dtype) -> None:
        """Continue in another type, in the same coordinates."""
        self.head.to(dtype)
        self.contexts = self.contexts.detach().to(dtype).requires_grad_()
        self.parameters = [self.contexts, *(each for each in self.head.parameters() if each.requires_grad)]
        self.blocks = [block.to(dtype) for block in self.blocks]

    def divergence(self) -> float:
        """Return the divergence in nats, and set the gradients of the parameters."""
        blocks, total = self.targets.blocks, 0.0
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        for number in range(len(blocks)):
            scores = self.head.scores(self.contexts[blocks.rows(number)])
            targets = self.targets.probabilities(number).to(self.contexts)
            if targets.dtype == torch.float64:  # a copy of float32 rows, which sum to 1 + δ
                targets /= targets.sum(1, keepdim=True)  # else a constant c on all logits lowers the loss by δc
            loss = blocked_loss(scores, targets, reduction="sum") / blocks.contexts
            loss.backward()
            total += float(loss.detach())
        self.passes.append(total - self.targets.mean_entropy)
        return self.passes[-1]

    def gradient_norm(self) -> float:
        """Return the norm of the gradient in all parameters."""
        self.divergence()
        return float(nn.utils.get_total_norm([_gradient(one) for one in self.parameters]))

    def renew(self, generator: torch.Generator) -> float:
        """Fit the coordinates to the parameters as they are; return what the gradient promises in them, in nats."""
        with full_precision():
            shapes = self._shapes()
        start = [parameter.detach().clone() for parameter in self.parameters]
        size = float(nn.utils.get_total_norm(start))
        self.blocks = []
        for place, (origin, block) in enumerate(zip(start, shapes, strict=True)):
            signs = torch.randint(0, 2, origin.shape, generator=generator).to(origin) * 2 - 1
            step = block.step(signs)
            length = PROBE * size / float(step.norm())
            slopes = []
            for end in (length, -length):
                self._move(start[place : place + 1], [end * step], place)
                self.divergence()
                slopes.append(float((block.gradient(_gradient(self.parameters[place])) * signs).sum()))
            self._move(start[place : place + 1], [torch.zeros_like(step)], place)
            curvature = abs(slopes[0] - slopes[1]) / (2 * length * signs.numel())
            self.blocks.append(block._replace(scale=block.scale / math.sqrt(max(curvature, LEAST_CURVATURE))))
        self.divergence()
        gradients = [block.gradient(_gradient(one)) for block, one in zip(self.blocks, self.parameters, strict=True)]
        self.promised = 0.5 * float(nn.utils.get_total_norm(gradients)) ** 2
        return self.promised

    def minimize(self, steps: int, dtype: torch.dtype = torch.float32) -> tuple[float, float]:
        """Take at most ``steps`` L-BFGS steps in ``dtype``; return the divergence before and after."""
        self.convert(dtype)
        start = [parameter.detach().clone() for parameter in self.parameters]
        y = [torch.zeros_like(one) for one in start]
        optimizer = torch.optim.LBFGS(
            y, max_iter=steps, max_eval=4 * steps, tolerance_grad=0, tolerance_change=0, history_size=HISTORY,
            line_search_fn="strong_wolfe",
        )  # fmt: skip

        def closure() -> float:
            self._move(start, [block.step(one) for block, one in zip(self.blocks, y, strict=True)])
            kl = self.divergence()
            for one, block, parameter in zip(y, self.blocks, self.parameters, strict=True):
                one.grad = block.gradient(_gradient(parameter))
            return kl

        first = float(optimizer.step(closure))
        self.steps += optimizer.state[y[0]]["n_iter"]
        last = closure()
        if not last < first:
            self._move(start, [torch.zeros_like(one) for one in start])
            last = first
        self.convert(torch.float64)
        return first, last

    @torch.no_grad()
    def _move(self, start: list[Tensor], steps: list[Tensor], first: int = 0) -> None:
        """Set the parameters from ``first`` on to ``start`` + ``steps``."""
        for parameter, origin, step in zip(self.parameters[first:], start, steps, strict=False):
            torch.add(origin, step, out=parameter)

    @torch.no_grad()
    def _shapes(self) -> list[Block]:
        """Return the coordinates of each parameter, each up to a factor."""
        contexts, weight = self.contexts, self.head.weight
        blocks, spread = self.targets.blocks, torch.zeros(len(weight)).to(weight)
        fisher = torch.empty(*contexts.shape, contexts.shape[1]).to(contexts)
        at_once = max(1, WORK_ENTRIES // (len(weight) * contexts.shape[1]))
        for rows in torch.arange(blocks.contexts).split(at_once):
            some = contexts[rows]
            step = DIFFERENCE * max(1.0, float(some.abs().max()))
            log_q = self.head.log_prob(some)
            q = log_q.exp()
            spread += (q * (1 - q)).sum(0)
            directions = step * torch.eye(some.shape[1]).to(some)
            J = torch.stack([(self.head.log_prob(some + one) - log_q) / step for one in directions], 1)
            fisher[rows] = torch.einsum("nim,nm,njm->nij", J, q, J)
        scores = self.head.scores(contexts)
        vectors = Block(_root(fisher, DAMPING if scores.log_prior is None else MIXTURE_DAMPING))
        met = scores.factors[0].contexts
        weights = torch.ones_like(met[..., 0]) if scores.log_prior is None else scores.log_prior.exp()
        spread = spread.clamp_min(DAMPING * float(spread.mean()) + LEAST_CURVATURE)
        embeddings = Block(_root(torch.einsum("tk,tki,tkj->ij", weights, met, met)), spread.rsqrt().unsqueeze(1))
        inputs = Block(_root(contexts.T @ contexts))
        return [vectors, *(
            embeddings if one is weight else inputs if one.ndim == 2 else Block(None) for one in self.parameters[1:]
        )]  # fmt: skip


def _root(curvature: Tensor, damping: float = DAMPING) -> Tensor:
    """Return R with RᵀR the inverse of a damped curvature, (…, d, d); NaN where that is not positive."""
    identity = torch.eye(curvature.shape[-1]).to(curvature)
    mean = curvature.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    lower, _ = torch.linalg.cholesky_ex(curvature + (damping * mean + LEAST_CURVATURE) * identity)
    return torch.linalg.solve_triangular(lower, identity.expand_as(curvature), upper=False)


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
