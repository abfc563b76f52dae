"""The best layers of each rank for some contexts, and trained ones: how far they are from the model's own layer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..core.devices import exact, sum_type
from ..core.progress import Progress
from ..heads.scores import Scores
from ..language_models import ModelOnText
from ..spectrum.arithmetic import triangle_of_blocks
from ..training.evaluate import perplexity_of
from .directions import ROWS
from .trained_heads import Trainer

LEAST = 1e-9
"""Smallest singular value of scaled hidden states, over the largest, below which a direction counts as not there. Other
texts may have it, and the model of all d dimensions then errs by float64's roundoff over this."""
POINTS = 4
"""Parts into which each pass divides the interval that holds the number of dimensions that are needed."""
CHOSEN = 0.25
"""Share of the first half that the learning rate is chosen on."""
KEPT = 0.99
"""Share of the distribution, and of the perplexity, that the printed sentence asks for."""


@dataclass(frozen=True)
class Reduced:
    """The model with its row-centred logits reduced to r dimensions, beside the model itself; means over contexts."""

    dimensions: int
    """r."""
    kl: float
    """KL(P‖P_r), in nats."""
    perplexity: float | None
    """Perplexity of the targets under P_r, if they are known."""
    agreement: float
    """Share of the contexts in which both have the same likeliest token."""
    acceptance: float
    """1 − TV(P, P_r), with which speculative decoding accepts a draft from P_r (Leviathan et al. 2023, theorem 3.5)."""


@dataclass(frozen=True)
class Trained(Reduced):
    """A layer of rank r that was trained from the reduced one; means over seeds."""

    kl_of_seeds: tuple[float, ...]
    """KL(P‖P_r) of each seed."""
    rate: float
    """Learning rate, relative to the entries' size; 0 where training did not improve on the reduced layer."""
    seconds: float
    """Time of all trainings of this rank."""


Layer = Callable[[Tensor, Scores], Iterator[Tensor]]
"""Yields log P_r for each r of some hidden states."""


class Fits:
    """The best layers of each rank for the first half of the contexts, and for the second, on which both are measured.

    Args:
        source: a model whose head has one set of logits.
        fitted: the first half.
        measured: the second half.
        progress: where to report.
    """

    def __init__(self, source: ModelOnText, fitted: range, measured: range, progress: Progress) -> None:
        self._source, self._fitted, self._measured, self._progress = source, fitted, measured, progress
        weight = source.head.weight.detach()
        self._mean = sum((exact(rows).sum(0) for rows in weight.split(ROWS)), torch.zeros(())) / len(weight)
        triangle = triangle_of_blocks(exact(rows) - self._mean for rows in weight.split(ROWS))
        bases = [_basis(source, contexts, triangle, self._mean) for contexts in (fitted, measured)]
        self._bases = [basis for basis, _ in bases]
        self.directions = min(count for _, count in bases)
        """Number of dimensions that the contexts of both halves have."""
        self._targets = None if source.targets is None else torch.from_numpy(source.targets).to(weight.device)

    def curves(self, ranks: Sequence[int], *, refine: bool) -> tuple[list[tuple[Reduced, ...]], float | None]:
        """Return the curves of both fits, and the model's perplexity; refine the dimensions that are needed."""
        found: list[dict[int, Reduced]] = [{} for _ in self._bases]
        perplexity: float | None = None
        while ranks:
            layers = [partial(_reduced_log_probs, basis, self._mean, ranks) for basis in self._bases]
            means, perplexity = self._means(layers, len(ranks))
            for points, curve in zip(found, means.tolist(), strict=True):
                points |= {r: self._reduced(r, values) for r, values in zip(ranks, curve, strict=True)}
            ranks = sorted({r for points in found for r in _between(points, perplexity)} if refine else ())
        return [tuple(points[r] for r in sorted(points)) for points in found], perplexity

    def trained(self, ranks: Sequence[int], folder: str | Path | None) -> tuple[Trained, ...]:
        """Return the trained layers of each rank, and write the best ones."""
        hidden = torch.cat([each for _, each in _hidden(self._source, self._fitted)])
        fitted = len(hidden) - max(1, int(CHOSEN * len(hidden)))
        inverse, right = self._bases[0]
        unit = math.sqrt(len(hidden))
        trainer = Trainer(self._source.head, hidden, fitted, inverse * unit, right / unit, self._mean, self._progress)
        results = []
        for r in ranks:
            started = time.monotonic()
            rate, layers = trainer.best(r)
            seconds = round(time.monotonic() - started, 1)
            if folder is not None:
                trainer.save(Path(folder), layers[0])
            of_seeds = [lambda hidden, _, layer=layer: iter([trainer.log_probs(hidden, layer)]) for layer in layers]
            means = self._means(of_seeds, 1)[0][:, 0]
            mean = vars(self._reduced(r, means.mean(0).tolist()))
            results.append(Trained(**mean, kl_of_seeds=tuple(means[:, 0].tolist()), rate=rate, seconds=seconds))
        return tuple(results)

    def _reduced(self, r: int, means: Sequence[float]) -> Reduced:
        kl, nll, same, kept = means
        return Reduced(r, max(0.0, kl), None if self._targets is None else math.exp(min(nll, 700.0)), same, kept)

    def _means(self, layers: Sequence[Layer], count: int) -> tuple[Tensor, float | None]:
        """Return the means of `_distances` on the measured contexts, (layers, count, 4), and the model's perplexity."""
        sums, loss = torch.zeros(len(layers), count, 4, dtype=torch.float64), 0.0
        with self._progress.bar("measuring smaller output layers", len(self._measured), "contexts") as bar:
            for rows, hidden in _hidden(self._source, self._measured):
                scores = self._source.head.scores(hidden)
                log_p = self._source.head.log_prob(hidden)
                own = log_p, log_p.exp(), log_p.argmax(1)
                token = None if self._targets is None else self._targets[rows.start : rows.stop, None]
                if token is not None:
                    losses = -exact(log_p.gather(1, token)[:, 0]).cpu().numpy()
                    self._source.check_losses(losses, rows.start)
                    loss += losses.sum()
                for place, layer in enumerate(layers):
                    for number, log_q in enumerate(layer(hidden, scores)):
                        sums[place, number] += _distances(own, log_q, token)
                bar.advance(len(hidden))
        T = len(self._measured)
        return sums / T, None if self._targets is None else perplexity_of(loss / T)


def _between(points: Mapping[int, Reduced], perplexity: float | None) -> Iterator[int]:
    """Yield what to measure next, to find the fewest dimensions that keep each quantity."""
    limits = [lambda each: each.acceptance >= KEPT]
    if perplexity is not None:
        limits.append(lambda each: (each.perplexity or math.inf) <= perplexity / KEPT)
    for is_kept in limits:
        least = min(r for r, each in points.items() if is_kept(each) or r == max(points))
        below = max((r for r in points if r < least), default=0)
        yield from {below + part * (least - below) // POINTS for part in range(1, POINTS)} - {below}


def _hidden(source: ModelOnText, contexts: range) -> Iterator[tuple[range, Tensor]]:
    step = source.rows_at_once()
    ranges = [range(start, min(start + step, contexts.stop)) for start in range(contexts.start, contexts.stop, step)]
    return zip(ranges, source.hidden(ranges), strict=True)


def _basis(source: ModelOnText, contexts: range, of_weight: Tensor, mean: Tensor) -> tuple[tuple[Tensor, Tensor], int]:
    """Return R⁻¹ E, (d, d), and C Rᵀ E, (M, d), whose first r columns give the row-centred logits of rank r.

    The number of dimensions that the contexts have comes with them.

    The columns of R are scaled, because the size of a dimension of H says nothing beside that of W. ``of_weight`` is
    the triangle of C.
    """
    vectors = (source.head.scores(hidden).factors[0].contexts.squeeze(-2) for _, hidden in _hidden(source, contexts))
    triangle = triangle_of_blocks(exact(rows) for rows in vectors)
    triangle = torch.nn.functional.pad(triangle, (0, 0, 0, triangle.shape[1] - len(triangle)))
    scale = torch.linalg.vector_norm(triangle, dim=0)
    scale = torch.where(scale > 0, scale, 1.0)
    left, values, right = torch.linalg.svd(triangle / scale)
    # Directions that no context has: they come last, and make r = d the model itself on every text.
    least = max(LEAST * float(values[0]), torch.finfo(torch.float64).tiny)
    count, values = int((values > least).sum()), values.clamp_min(least)
    root, inverse = (left * values) @ right * scale, right.T / scale[:, None] / values @ left.T
    directions = torch.linalg.svd(root @ of_weight.T)[0]
    weight = source.head.weight.detach()
    found = torch.cat([((exact(rows) - mean) @ (root.T @ directions)).to(weight) for rows in weight.split(ROWS)])
    return (inverse @ directions, found), count


def _reduced_log_probs(
    basis: tuple[Tensor, Tensor], mean: Tensor, ranks: Sequence[int], hidden: Tensor, scores: Scores
) -> Iterator[Tensor]:
    """Yield log P_r for each r."""
    (factors,), function, (inverse, right) = scores.factors, scores.function, basis
    contexts = exact(factors.contexts.squeeze(-2))
    left = (contexts @ inverse).to(right)
    logits = torch.zeros(len(left), len(right)).to(right)
    if factors.bias is not None:
        logits += factors.bias
    if function is not None:
        logits += (contexts @ mean)[:, None].to(logits)
    for start, r in zip([0, *ranks], ranks, strict=False):
        logits.addmm_(left[:, start:r], right[:, start:r].T)
        capped = logits if function is None else function(logits.unsqueeze(-2)).squeeze(-2)
        yield torch.log_softmax(capped, -1)


def _distances(own: tuple[Tensor, Tensor, Tensor], log_q: Tensor, target: Tensor | None) -> Tensor:
    """Return the sums over contexts of KL, the loss of the target, agreement, and 1 − TV, in float64.

    ``own`` is log P, P and the likeliest tokens of the model.
    """
    (log_p, p, likeliest), wide = own, sum_type(log_q.device)
    divergence = torch.where(p > 0, p * (log_p - log_q), 0.0).sum(dtype=wide)
    loss = log_q.new_zeros(()) if target is None else -log_q.gather(1, target).sum(dtype=wide)
    agreement = (likeliest == log_q.argmax(1)).sum(dtype=wide)
    acceptance = (1 - (p - log_q.exp()).abs().sum(1, dtype=wide) / 2).sum()
    return torch.stack([each.cpu().double() for each in (divergence, loss, agreement, acceptance)])
