"""``rank`` that keeps its state after every block, as a program that kills itself after some blocks."""

from __future__ import annotations

import os
import signal
import sys

from softmax_bottleneck import rank
from softmax_bottleneck.measure import computing
from softmax_bottleneck.spectrum import SpectrumMethod, compute, saved

SETTINGS = (
    (computing, "LONG", 0),
    (saved, "SECONDS_BETWEEN_SAVES", -1.0),
    (saved, "SHARE_OF_TIME", float("inf")),
    (compute, "gathered", lambda blocks, rows: blocks),
)

if __name__ == "__main__":
    store, method, width, left = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    for module, name, value in SETTINGS:
        setattr(module, name, value)
    update = SpectrumMethod.update

    def counted(self: SpectrumMethod, rows: object) -> None:
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        update(self, rows)

    SpectrumMethod.update = counted  # type: ignore[method-assign]
    rank(store, method=method, width=width)
