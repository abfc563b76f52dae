"""Time one method's stream of rows, shared by the processes of torchrun that run this module.

torchrun --nproc-per-node 2 -m softmax_bottleneck.bench.shared gram 20000 5000
"""

from __future__ import annotations

import json
import sys
import time

import torch
from torch import Tensor

from ..core.parallel import Processes, launched
from ..spectrum import SpectrumMethod, SpectrumSettings, build
from ..spectrum.base import Stream
from ..spectrum.compute import extended, merged, started

ROWS = 1024
"""Rows of a block."""
D = 400
"""Embedding size of the output layer whose factors the factored method takes."""


def stream_seconds(name: str, rows: int, columns: int, processes: Processes) -> dict[str, float]:
    """Return the seconds until the rows of all processes are merged in the first one, and those of merging alone.

    The rows are random, and made before. For the factored method they are [H, 1, −log Z], and log Z, which takes a
    product of all hidden states with W, belongs to the time. The decomposition does not: one process does it.
    """
    generator = torch.Generator().manual_seed(processes.index)
    is_factored = name == "factored"
    weight = torch.randn(columns, D, generator=generator)
    right = torch.cat([weight, torch.ones(columns, 2)], 1).numpy()
    mine = [number for number in range(-(-rows // ROWS)) if processes.takes(number)]
    given = [torch.randn(ROWS, D if is_factored else columns, generator=generator) for _ in mine]
    method = build(SpectrumSettings(method=name, device="cpu"), right if is_factored else columns)
    assert isinstance(method, SpectrumMethod)

    def streamed(blocks: list[Tensor]) -> Stream:
        stream = started(method)
        for block in blocks:
            log_z = torch.logsumexp(block @ weight.T, 1, keepdim=True) if is_factored else block[:, :0]
            taken = torch.cat([block, torch.ones_like(log_z), -log_z], 1)
            stream = extended(method, stream, taken.double())
        return stream

    streamed(given[:1])  # which loads libraries
    processes.sum(torch.zeros(1))  # all begin together
    begun = time.perf_counter()
    stream = streamed(given)
    processes.sum(torch.zeros(1))
    alone = time.perf_counter()
    merged(method, stream, processes)
    processes.sum(torch.zeros(1))
    ended = time.perf_counter()
    return {"stream_seconds": ended - begun, "merge_seconds": ended - alone}


if __name__ == "__main__":
    with launched() as group:
        found = stream_seconds(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), group)
        if group.first:
            sys.stdout.write(json.dumps(found))
