"""Matrices of 240 MB are dumped and ranked in blocks: measured in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


start = peak()
assert rank(Large()).rank.value == r
print(peak() - start)
dump(Large(), sys.argv[1])
print(peak() - start)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_memory_is_that_of_a_few_blocks(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "s.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    of_rank, of_both = map(float, done.stdout.split())
    assert of_rank < 40  # megabytes
    assert of_both < 150
