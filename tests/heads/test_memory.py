"""Peak memory of the loss, measured in a process of its own, because a high-water mark never falls."""

from __future__ import annotations

import os
import subprocess
import sys

MEASURE = """
import resource
import sys

import torch
from softmax_bottleneck import heads

torch.set_num_threads(1)
contexts, vocab = 1800, 8_000
names = "mos", "mixtape"


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run(name, count):
    settings = {"components": 2} if "components" in heads.parameters(name) else {}
    head = heads.build(name, hidden_size=8, vocab_size=vocab, **settings)
    hidden, targets = torch.randn(count, 8, requires_grad=True), torch.randint(vocab, (count,))
    head.nll(hidden, targets).backward()


for name in names:
    run(name, 600)
before = peak()
for name in names:
    run(name, contexts)
    print(name, peak() - before, contexts * vocab * 4)
"""


def test_no_head_holds_all_log_probabilities_at_once() -> None:
    """Growth from 600 contexts to 1,800 stays below half of T × M, let alone T × M × K."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        # Without this, glibc keeps freed blocks in its heap, whose gaps then grow the mark by what was not in use.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) == 2
    for name, grown, whole in rows:
        assert int(grown) < int(whole) / 2, name
