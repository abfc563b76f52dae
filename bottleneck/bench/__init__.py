"""Benchmarks of this package's algorithms beside the usual ones, in one run, each in its own process.

All take ``device`` (``"cpu"`` or an accelerator), ``progress``, and most of them ``shrink``, a divisor of their sizes:
goals hold for 1. They return what `in_turn.report` returns, and raise `BottleneckError` when a case fails.
"""

from .frozen_body import study_frozen_body
from .heads import bench_heads
from .hugging_face import bench_hugging_face
from .spam import bench_spam
from .spectrum import bench_spectrum
from .training import bench_training
from .transformer_study import study_transformers
from .transformers import bench_transformers

__all__ = [
    "bench_heads", "bench_hugging_face", "bench_spam", "bench_spectrum", "bench_training", "bench_transformers",
    "study_frozen_body", "study_transformers",
]  # fmt: skip
