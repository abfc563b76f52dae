"""SpamLang, a language in which every text repeats one symbol (Godey and Artzi 2026); ten minutes on one core.

    python notebooks/studies/spam.py figures/results/bench/spam.json

A recurrent model reads a symbol and must predict it again. Its output layer has M outputs and d dimensions. As M grows
in a fixed number of steps, each symbol is also seen less often, so a second arm draws the texts from the first 1,000 of
the M symbols: the layer is as large, and each symbol is seen as often as at M = 1,000.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from softmax_bottleneck import heads
from softmax_bottleneck.core.files import write_json
from softmax_bottleneck.core.machine import machine
from softmax_bottleneck.core.version import __version__

HEADS: dict[str, dict[str, Any]] = {"softmax": {}, "mos": {"components": 2}, "sigsoftmax": {}}
VOCABULARIES, SIZES, SYMBOLS = (1_000, 10_000, 100_000), (16, 64), 1_000
STEPS, TEXTS, LENGTH, RATE = 250, 32, 3, 0.03
"""Steps, texts of a step, symbols of a text, and Adam's learning rate: of 0.003, 0.01 and 0.03 the best for Softmax at
M = 1,000 and d = 16."""
TESTED = 512
"""Texts whose second symbol is predicted after training."""


@dataclass(frozen=True)
class SpamCell:
    """One model."""

    vocab: int
    """M."""
    size: int
    """d."""
    head: str
    symbols: int
    """Number of symbols that texts are drawn from."""


def spam_cells() -> Iterator[SpamCell]:
    """Yield the grid: all symbols for every M, and 1,000 of them for every larger M."""
    for vocab, size, head in product(VOCABULARIES, SIZES, HEADS):
        for symbols in sorted({SYMBOLS, vocab}):
            yield SpamCell(vocab, size, head, symbols)


def study_spam() -> dict[str, Any]:
    """Train every model of the grid and return its loss and accuracy on the repeated symbol."""
    cases = {}
    for cell in spam_cells():
        name = f"M = {cell.vocab:,}, d = {cell.size}, {cell.head}, {cell.symbols:,} symbols"
        cases[name] = {**asdict(cell), **train_spam(cell, STEPS)}
        print(f"{name}: {cases[name]['nats']:.2f} nats", file=sys.stderr)
    sizes = {"steps": STEPS, "texts": TEXTS, "length": LENGTH}
    return {"kind": "spam", "cases": cases, **sizes, "goals": [], "machine": machine(), "version": __version__}


def train_spam(cell: SpamCell, steps: int) -> dict[str, float]:
    """Train one model from seed 0; return loss in nats, share of right guesses, and processor seconds."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        embedding, body = (
            nn.Embedding(cell.vocab, cell.size, sparse=True),
            nn.GRU(cell.size, cell.size, batch_first=True),
        )
        head = heads.build(cell.head, hidden_size=cell.size, vocab_size=cell.vocab, **HEADS[cell.head])
        dense = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=RATE, fused=True)
        optimizers = (dense, torch.optim.SparseAdam(embedding.parameters(), lr=RATE))
        began = time.process_time()
        for _ in range(steps):
            ids = torch.randint(cell.symbols, (TEXTS, 1)).expand(-1, LENGTH)
            hidden, _ = body(embedding(ids[:, :-1]))
            head.nll(hidden.flatten(0, 1), ids[:, 1:].flatten(), reduction="mean").backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        seconds = time.process_time() - began
        ids = torch.randint(cell.symbols, (TESTED, 1))
        with torch.no_grad():
            log_prob = torch.cat([head.log_prob(body(embedding(part))[0][:, 0]) for part in ids.split(TEXTS)])
    return {
        "nats": float(-log_prob.gather(1, ids).mean()),
        "chance": math.log(cell.symbols),
        "accuracy": float((log_prob.argmax(1, keepdim=True) == ids).double().mean()),
        "processor_seconds": seconds,
    }


if __name__ == "__main__":
    write_json(Path(sys.argv[1]), study_spam())
