"""Sums with bitwise reproducible results, on CUDA under ``torch.use_deterministic_algorithms(True)``.

Torch's kernels add in a fixed order on the CPU. On CUDA they do not, and raise an error in deterministic mode, where
the slower functions here replace them.
"""

from __future__ import annotations

import torch
from torch import Tensor

PIECE = 1 << 18
"""Numbers processed at a time; with their weights in float64 they take a few MiB."""


def histograms(index: Tensor, weights: Tensor, factors: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Return the sums of the weights, and of the weights times the factors, in each bin: float64, (bins,) each.

    Both are added in one pass as the parts of complex numbers, because the random access to the bins takes most of the
    time. ``index`` (n,) holds int64 bins from 0; ``weights`` and ``factors`` have the shape (n,).
    """
    sums = torch.zeros(bins, dtype=torch.complex128, device=index.device)
    both = torch.empty(min(PIECE, len(index)), 2, dtype=torch.float64, device=index.device)
    for piece, weight, factor in zip(index.split(PIECE), weights.split(PIECE), factors.split(PIECE), strict=True):
        filled = both[: len(piece)]
        filled[:, 0], filled[:, 1] = weight, weight * factor
        added = torch.view_as_complex(filled)
        if _must_be_deterministic(index):
            sums.index_put_((piece,), added, accumulate=True)  # after a stable sort, in one order
        else:
            sums.scatter_add_(0, piece, added)
    parts = torch.view_as_real(sums)
    return parts[:, 0], parts[:, 1]


def prefix_sums(values: Tensor) -> Tensor:
    """Return v_0, v_0 + v_1, …: (n,) → (n,)."""
    return prefix_sums_by_doubling(values) if _must_be_deterministic(values) else torch.cumsum(values, 0)


def prefix_sums_by_doubling(values: Tensor) -> Tensor:
    """Return `prefix_sums` in log₂ n elementwise steps (Hillis and Steele 1986)."""
    step = 1
    while step < len(values):
        values = torch.cat([values[:step], values[step:] + values[:-step]])
        step *= 2
    return values


def _must_be_deterministic(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.are_deterministic_algorithms_enabled()
