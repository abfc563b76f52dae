"""Matrices of 240 MB are dumped and ranked in blocks, states are held once: measured in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

PEAK = """
from pathlib import Path


def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
"""
SCRIPT = """
import sys
from pathlib import Path

import numpy as np
import torch

from softmax_bottleneck.sources import Block, FactorRows, RightFactor, Source
from softmax_bottleneck.measure import rank
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import UNKNOWN
from softmax_bottleneck.spectrum import precision

T, M, r = 6_000, 10_000, 3


class Large(Source):
    shape, dtype, bound, embedding_size, targets = (T, M), "float32", UNKNOWN, r, None
    description, identity, precision = {"path": "large", "kind": "test"}, {}, precision("float32")

    def blocks(self, ranges=None):
        for rows in self.ranges() if ranges is None else ranges:
            yield Block(rows.start, np.full((len(rows), M), -1.0, np.float32))

    def factors(self):
        right = RightFactor(torch.from_numpy(np.cos(np.outer(np.arange(M), 1 + np.arange(r - 1)))))
        return FactorRows(lambda ranges: (np.sin(np.outer(rows, 1 + np.arange(r))) for rows in ranges), right)


start = peak()
assert rank(Large()).rank.value == r
print(peak() - start)
dump(Large(), sys.argv[1])
print(peak() - start)
"""


STATES = """
import sys

import torch

import softmax_bottleneck as sb

sb.rank(torch.nn.Linear(256, 300), hidden=torch.randn(50, 256))  # all code is loaded
start = peak()
source = sb.open(sys.argv[1])
print(peak() - start)
assert sb.rank(source).rank.value == 257
assert sb.perplexity(source).tokens == 199_999
print(peak() - start)
"""

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")


def numbers(script: str, argument: Path) -> list[float]:
    """Return what a script prints in a process of one thread, in megabytes."""
    command = [sys.executable, "-c", PEAK + script, str(argument)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return [*map(float, done.stdout.split())]


@needs_proc
def test_memory_is_that_of_a_few_blocks(tmp_path: Path) -> None:
    of_rank, of_both = numbers(SCRIPT, tmp_path / "s.zarr")
    assert of_rank < 40
    assert of_both < 150


@needs_proc
def test_memory_of_states_is_theirs(tmp_path: Path) -> None:
    """Eight files of 25 MB, so 200 MB; the rest is that of blocks."""
    (tmp_path / "hidden").mkdir()
    for number in range(8):
        arrays = {"hidden_states": torch.randn(25_000, 256), "token_ids": torch.randint(300, (25_000,))}
        save_file(arrays, tmp_path / "hidden" / f"{number}.safetensors")
    save_file({"weight": torch.randn(300, 256)}, tmp_path / "head.safetensors")
    about = {"format": "softmax-bottleneck states 1", "contexts": 200_000}
    (tmp_path / "states.json").write_text(json.dumps(about))
    opened, measured = numbers(STATES, tmp_path)
    assert opened < 350
    assert measured < 450
