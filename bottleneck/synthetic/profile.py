"""The time of a pass over the distributions, beside that of its matrix products and exponential alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch.utils import benchmark

from ..core.machine import machine
from ..heads import Head
from ..heads.blocked import blocked_loss
from .dirichlet import DEFAULT_MEMORY, DirichletBlocks, Targets
from .models import build

REPEATS = 5


def profile(
    blocks: DirichletBlocks, *, dim: int, models: Iterable[str], max_memory: int = DEFAULT_MEMORY
) -> dict[str, Any]:
    """Measure the time of one pass of each model, loss and gradients, over all contexts: the least of five.

    Args:
        blocks: P*.
        dim: D.
        models: names of `MODELS`; the linear softmax is always measured.
        max_memory: largest size of P*, in bytes, that is kept in memory, as in a fit.

    Returns:
        ``contexts``, ``vocab``, ``dim``, ``device``, ``machine``, ``threads``; ``cached``, whether P* was kept;
        seconds: ``sample``, to draw P* once; ``bare``, for three matrix products and one exponential for each block,
        each product in its fastest order; ``passes``, for each model without sampling; the ratios ``over_bare`` and
        ``over_softmax`` of ``passes``.
    """
    targets = Targets(blocks, max_memory=max_memory)
    first = targets.probabilities(0)
    hidden = torch.randn(blocks.rows_at_once, dim, device=blocks.device)
    weight = torch.ones(blocks.vocab, dim, device=blocks.device)

    def one_pass(head: Head) -> None:
        for block in range(len(blocks)):
            rows = blocks.rows(block)
            P = targets.probabilities(block) if targets.cached else first[: rows.stop - rows.start]
            contexts = hidden[: len(P)].detach().requires_grad_()
            blocked_loss(head.scores(contexts), P, reduction="sum").backward()

    def bare() -> None:
        for block in range(len(blocks)):
            rows = blocks.rows(block)
            contexts = torch.ones_like(hidden[: rows.stop - rows.start])
            probability = torch.exp(contexts @ weight.T)
            _ = weight.T @ probability.T, contexts.T @ probability

    tasks: dict[str, Callable[[], Any]] = {"sample": lambda: [None for _ in blocks], "bare": bare}
    for name in ("softmax", *models):
        head = build(name, vocab=blocks.vocab, dim=dim, seed=0, device=blocks.device)
        tasks.setdefault(name, partial(one_pass, head))
    seconds = dict.fromkeys(tasks, math.inf)
    for _ in range(REPEATS):  # tasks run in turn, so that other load on the machine slows all of them
        for name, task in tasks.items():
            started = benchmark.timer()  # it waits for the kernels of a GPU
            task()
            seconds[name] = min(seconds[name], benchmark.timer() - started)
    sample, bare_seconds = seconds.pop("sample"), seconds.pop("bare")
    return {
        "contexts": blocks.contexts,
        "vocab": blocks.vocab,
        "dim": dim,
        "device": blocks.device,
        "machine": machine(blocks.device),
        "threads": torch.get_num_threads(),
        "cached": targets.cached,
        "sample": sample,
        "bare": bare_seconds,
        "passes": seconds,
        "over_bare": {name: value / bare_seconds for name, value in seconds.items()},
        "over_softmax": {name: value / seconds["softmax"] for name, value in seconds.items()},
    }
