"""What a pass over the distributions costs, beside the arithmetic it cannot do without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .cross_entropy import cross_entropy_backward
from .dirichlet import DirichletBlocks
from .models import build
from .targets import DEFAULT_MEMORY, Targets

REPEATS = 3


def profile(
    blocks: DirichletBlocks, *, dim: int, models: Iterable[str], max_memory: int = DEFAULT_MEMORY
) -> dict[str, Any]:
    """Time one pass of each model, loss and gradients, over all contexts; the quickest of three.

    Args:
        blocks: P*.
        dim: D.
        models: names of `MODELS`; the linear softmax is measured in any case.
        max_memory: bytes; decides as in a fit whether P* is kept or made again.

    Returns:
        ``contexts``, ``vocab``, ``dim``; ``cached``; seconds to ``sample`` P* once; seconds of the ``bare`` three
        matrix products and one exponential a block, each product in its quickest order; ``passes``: seconds of each
        model without sampling; ``over_bare`` and ``over_softmax``: their ratios.
    """
    targets = Targets(blocks, max_memory=max_memory)
    first = blocks.log_probs(0).exp_()
    names = list(dict.fromkeys(["softmax", *models]))
    seconds = {}
    for name in names:
        head = build(name, vocab=blocks.vocab, dim=dim, seed=0, device=blocks.device)
        hidden = torch.randn(blocks.rows_at_once, dim, device=blocks.device)

        def one_pass(head: Any = head, hidden: Any = hidden) -> None:
            for block in range(len(blocks)):
                P = targets.probabilities(block) if targets.cached else first
                cross_entropy_backward(head, hidden[: len(P)].detach().requires_grad_(), P)

        seconds[name] = _seconds(one_pass, blocks.device)
    bare = _seconds(lambda: _bare(blocks, dim), blocks.device)
    return {
        "contexts": blocks.contexts,
        "vocab": blocks.vocab,
        "dim": dim,
        "device": blocks.device,
        "threads": torch.get_num_threads(),
        "cached": targets.cached,
        "sample": _seconds(lambda: [None for _ in blocks], blocks.device),
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


def _seconds(work: Callable[[], Any], device: str) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        _wait(device)
        started = time.perf_counter()
        work()
        _wait(device)
        best = min(best, time.perf_counter() - started)
    return best


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
