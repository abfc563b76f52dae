r"""Output layers of rank r that are trained on a model's own hidden states.

The logits of such a layer are :math:`z D U^⊤ + b`, with z the coordinates of a context vector in which the truncated
layer has D = [I, 0], of r columns. D, (d, r), and U, (M, r), start there and go down the mean of KL(P‖P_r) by Adam
(Kingma and Ba 2015), with a learning rate that falls to zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from ..core.devices import exact
from ..core.files import make_folder, write_bytes
from ..core.progress import Progress
from ..errors import OutputError
from ..heads import Head

SEEDS, EPOCHS, BATCH = 3, 2, 128
"""Trainings that differ in the order of the contexts, passes over the contexts, and contexts in a step."""
LEAST_GAIN = 1e-6
"""Nats that training has to gain."""
MOST = 2 << 30
"""Bytes of the model's own log-probabilities that are kept."""
FIRST_RATE, FACTOR, LEAST_RATE = 0.01, 3.0, 1e-4
"""The learning rate that is tried first, relative to the size of U and D, the factor between those tried, and about the
smallest."""


class Factors(NamedTuple):
    """The factors of a layer, and what KL it reaches where the learning rate is chosen."""

    down: Tensor
    """D, (d, r)."""
    up: Tensor
    """U, (M, r)."""
    kl: float = math.nan


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains layers on some contexts, with the learning rate that is best on others."""

    head: Head
    hidden: Tensor
    """Hidden states, (n, hidden_size)."""
    fitted: int
    """Number of contexts to train on; the learning rate is chosen on those after them."""
    coordinates: Tensor
    """Makes z of context vectors, (d, d), with as much in each direction as in any other on the fitted text."""
    right: Tensor
    """U of the truncated layers of all ranks, (M, d)."""
    mean: Tensor
    """Mean row of W, (d,)."""
    progress: Progress

    def log_probs(self, hidden: Tensor, layer: Factors) -> Tensor:
        """Return log P_r, (n, M)."""
        (factors, *_), _, function = self.head.scores(hidden)
        contexts = factors.contexts.squeeze(-2)
        logits = F.linear((exact(contexts) @ self.coordinates).to(layer.up) @ layer.down, layer.up, factors.bias)
        if function is not None:
            offset = (exact(contexts) @ self.mean).to(logits)
            logits = function((logits + offset[:, None]).unsqueeze(-2)).squeeze(-2)
        return torch.log_softmax(logits, -1)

    @cached_property
    def _own(self) -> Tensor | None:
        """The model's log P of all these contexts, (n, M), unless it is too large; every training reads it."""
        hidden = self.hidden
        if len(hidden) * self.head.vocab_size * hidden.itemsize > MOST:
            return None
        return torch.cat([self.head.log_prob(part) for part in hidden.split(BATCH)])

    def _kl(self, rows: Tensor, layer: Factors) -> Tensor:
        hidden = self.hidden[rows]
        with torch.no_grad():
            log_p = self.head.log_prob(hidden) if self._own is None else self._own[rows]
        log_q = self.log_probs(hidden, layer)
        return torch.where(log_p > -torch.inf, log_p.exp() * (log_p - log_q), 0.0).sum(-1)

    @torch.no_grad()
    def _judged(self, layer: Factors) -> Factors:
        chosen = torch.arange(self.fitted, len(self.hidden))
        kl = sum(float(self._kl(rows, layer).sum()) for rows in chosen.split(BATCH)) / len(chosen)
        return layer._replace(kl=kl)

    def _start(self, r: int) -> Factors:
        return Factors(torch.eye(len(self.coordinates), r).to(self.right), self.right[:, :r].clone())

    def _trained(self, r: int, rate: float, seed: int) -> Factors:
        generator, layer = torch.Generator().manual_seed(seed), self._start(r)
        sizes = len(layer.down) ** -0.5, float(layer.up.square().mean().sqrt())
        groups = [
            {"params": [each.requires_grad_()], "lr": rate * size} for each, size in zip(layer[:2], sizes, strict=True)
        ]
        optimizer, steps = torch.optim.Adam(groups), EPOCHS * -(-self.fitted // BATCH)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        with self.progress.bar(f"training r = {r:,}, rate {rate:.2g}, seed {seed}", steps, "steps") as bar:
            for _ in range(EPOCHS):
                for rows in torch.randperm(self.fitted, generator=generator).split(BATCH):
                    optimizer.zero_grad()
                    with torch.enable_grad():
                        self._kl(rows, layer).mean().backward()
                    optimizer.step()
                    schedule.step()
                    bar.advance(1)
        return self._judged(Factors(layer.down.detach(), layer.up.detach()))

    def best(self, r: int) -> tuple[float, list[Factors]]:
        """Return the best learning rate, and a layer of each seed, the best one first.

        A training that ends farther from the model than the truncated layer gives that one, with the rate 0.
        """
        tried = {rate: self._trained(r, rate, 0) for rate in (FIRST_RATE, FIRST_RATE / FACTOR)}
        while (rate := min(tried, key=lambda each: tried[each].kl)) in (min(tried), max(tried)):
            if not LEAST_RATE < rate < 1:
                break
            further = rate * FACTOR if rate == max(tried) else rate / FACTOR
            tried[further] = self._trained(r, further, 0)
        if tried[rate].kl > (start := self._judged(self._start(r))).kl - LEAST_GAIN:
            return 0.0, [start]
        layers = [tried[rate], *(self._trained(r, rate, seed) for seed in range(1, SEEDS))]
        return rate, sorted(layers, key=lambda each: each.kl)

    def save(self, folder: Path, layer: Factors) -> None:
        """Write a layer as W of rank r, with its factors, and the bias of the model."""
        down = (self.coordinates @ exact(layer.down)).to(layer.up)
        weight = layer.up @ down.T + (0 if self.head.function is None else self.mean.to(layer.up))
        tensors = {"weight": weight, "up": layer.up, "down": down.T.contiguous()}
        if self.head.bias is not None:
            tensors["bias"] = self.head.bias.detach()
        data = save({name: each.cpu() for name, each in tensors.items()})
        write_bytes(file_of(make_folder(folder), layer.up.shape[1]), data)


def file_of(folder: Path, rank: int) -> Path:
    """Return the file of a trained layer."""
    return folder / f"rank-{rank}.safetensors"


def check_free(folder: Path, ranks: Iterable[int], source: str) -> None:
    """Refuse a folder of a source, and one where files of these names hold something else than trained layers."""
    if Path(source).is_dir() and folder.resolve().is_relative_to(Path(source).resolve()):
        raise OutputError(f"cannot write {folder}: it is part of what is read, {source}; name another place")
    for file in filter(Path.exists, (file_of(folder, rank) for rank in ranks)):
        with suppress(SafetensorError, OSError), safe_open(file, "pt") as saved:
            if {"weight", "up", "down"} <= {*saved.keys()}:
                continue
        raise OutputError(f"cannot write {file}: another file is there; name another folder")
