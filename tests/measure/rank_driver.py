"""``rank`` that keeps its state after every block, as a program that kills itself after some blocks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from softmax_bottleneck import rank
from softmax_bottleneck.measure import computing
from softmax_bottleneck.spectrum import compute, saved

blocks_left, blocks_taken = -1, 0


def counted(blocks: Iterable[Any], *_: object) -> Iterator[Any]:
    """Take the place of `gathered`: yield one block at a time, until this process kills itself."""
    global blocks_left, blocks_taken
    for block in blocks:
        if blocks_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        blocks_left, blocks_taken = blocks_left - 1, blocks_taken + 1
        yield np.array(block)


SETTINGS = (
    (computing, "LONG", 0),
    (saved, "SECONDS_BETWEEN_SAVES", -1.0),
    (saved, "SHARE_OF_TIME", float("inf")),
    (compute, "gathered", counted),
)

if __name__ == "__main__":
    store, method, width, blocks_left = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    for module, name, value in SETTINGS:
        setattr(module, name, value)
    rank(store, method=method, width=width)
