"""Benchmarks: our algorithms beside the usual ones, in one run, each in a process of its own."""

from .spectrum import bench_spectrum

__all__ = ["bench_spectrum"]
