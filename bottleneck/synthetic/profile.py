"""The time of a pass over the distributions, beside that of its matrix products and exponential alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch

from ..core.machine import machine
from ..heads import Head
from ..heads.blocked import blocked_loss
from .dirichlet import DirichletBlocks
from .models import build
from .targets import DEFAULT_MEMORY, Targets

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
    names = list(dict.fromkeys(["softmax", *models]))
    hidden = torch.randn(blocks.rows_at_once, dim, device=blocks.device)

    def one_pass(head: Head) -> None:
        for block in range(len(blocks)):
            rows = blocks.rows(block)
            P = targets.probabilities(block) if targets.cached else first[: rows.stop - rows.start]
            contexts = hidden[: len(P)].detach().requires_grad_()
            blocked_loss(head.scores(contexts), P, reduction="sum").backward()

    heads = {name: build(name, vocab=blocks.vocab, dim=dim, seed=0, device=blocks.device) for name in names}
    seconds = _seconds(
        {
            "sample": lambda: [None for _ in blocks],
            "bare": lambda: _bare(blocks, dim),
            **{name: partial(one_pass, head) for name, head in heads.items()},
        },
        blocks.device,
    )
    sample, bare = seconds.pop("sample"), seconds.pop("bare")
    return {
        "contexts": blocks.contexts,
        "vocab": blocks.vocab,
        "dim": dim,
        "device": blocks.device,
        "machine": machine(blocks.device),
        "threads": torch.get_num_threads(),
        "cached": targets.cached,
        "sample": sample,
        "bare": bare,
        "passes": seconds,
        "over_bare": {name: value / bare for name, value in seconds.items()},
        "over_softmax": {name: value / seconds["softmax"] for name, value in seconds.items()},
    }


def _bare(blocks: DirichletBlocks, dim: int) -> None:
    hidden = torch.ones(blocks.rows_at_once, dim, device=blocks.device)
    weight = torch.ones(blocks.vocab, dim, device=blocks.device)
    for block in range(len(blocks)):
        rows = blocks.rows(block)
        h = hidden[: rows.stop - rows.start]
        probability = torch.exp(h @ weight.T)
        _ = weight.T @ probability.T, h.T @ probability


def _seconds(tasks: Mapping[str, Callable[[], Any]], device: str) -> dict[str, float]:
    """Return the least seconds of each task. Tasks run in turn, so that other load on the machine slows all of them."""
    best = dict.fromkeys(tasks, math.inf)
    for _ in range(REPEATS):
        for name, task in tasks.items():
            _wait(device)
            started = time.perf_counter()
            task()
            _wait(device)
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
