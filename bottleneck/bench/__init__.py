"""Benchmarks: our algorithms beside the usual ones, in one run, each in a process of its own."""

from .heads import bench_heads
from .hugging_face import bench_hugging_face
from .large_corpora import bench_corpora
from .spectrum import bench_spectrum
from .training import bench_training

__all__ = ["bench_corpora", "bench_heads", "bench_hugging_face", "bench_spectrum", "bench_training"]
