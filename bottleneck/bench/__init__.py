"""Benchmarks of this package's algorithms beside the usual ones, in one run, each in its own process.

All take ``device`` (``"cpu"`` or an accelerator), ``progress``, and most of them ``shrink``, a divisor of their sizes:
goals hold for 1. They return what `in_turn.report` returns, and raise `BottleneckError` when a case fails.
"""

from .heads import bench_heads
from .spectrum import bench_spectrum
from .training import bench_training

__all__ = ["bench_heads", "bench_spectrum", "bench_training"]
