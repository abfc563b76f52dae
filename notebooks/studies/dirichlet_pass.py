"""The time of a pass over Dirichlet distributions, beside that of its matrix products and exponential alone.

python notebooks/studies/dirichlet_pass.py figures/results/bench/synthetic-profile.json
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils import benchmark

from softmax_bottleneck.core.files import write_json
from softmax_bottleneck.core.machine import machine
from softmax_bottleneck.heads import Head
from softmax_bottleneck.heads.blocked import blocked_loss
from softmax_bottleneck.synthetic import DirichletBlocks, Targets
from softmax_bottleneck.synthetic.models import build

REPEATS = 5
CONTEXTS, VOCAB, DIM, MODELS = 10_000, 1_000, 10, ("mos", "lms-plif")
"""T, M, D, and the models beside the linear softmax."""


def profile() -> dict[str, Any]:
    """Measure the time of one pass of each model, loss and gradients, over all contexts: the least of five.

    In the result are, in seconds, ``sample``, to draw P* once; ``bare``, three matrix products and one exponential for
    each block, each product in its fastest order; and ``passes``, for each model without sampling.
    """
    blocks, dim = DirichletBlocks(CONTEXTS, VOCAB, 0.1, 0), DIM
    targets = Targets(blocks)
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
    for name in ("softmax", *MODELS):
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
        "kind": "dirichlet-pass",
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


if __name__ == "__main__":
    write_json(Path(sys.argv[1]), profile())
