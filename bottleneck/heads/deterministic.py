"""Sums that come out the same to the bit, on CUDA too where torch is told to be deterministic.

On the CPU torch's own kernels add in one order. On CUDA they do not, and under
``torch.use_deterministic_algorithms(True)`` refuse to run; what stands in for them then is a few times slower.
"""

from __future__ import annotations

import torch
from torch import Tensor


def histogram(index: Tensor, weights: Tensor, bins: int) -> Tensor:
    """Return the sum of the weights in each bin.

    Args:
        index: integer, (n,), bins from 0.
        weights: float, (n,).
        bins: their number.

    Returns:
        (bins,), in the type of the weights.
    """
    if _must_be_deterministic(index):
        return histogram_by_sorting(index, weights, bins)
    return torch.bincount(index, weights, minlength=bins)


def prefix_sums(values: Tensor) -> Tensor:
    """Return v_0, v_0 + v_1, …: (n,) → (n,)."""
    return prefix_sums_by_doubling(values) if _must_be_deterministic(values) else torch.cumsum(values, 0)


def histogram_by_sorting(index: Tensor, weights: Tensor, bins: int) -> Tensor:
    """Return `histogram` by a stable sort: torch's accumulating ``index_put_``, which then adds in one order."""
    return weights.new_zeros(bins).index_put_((index.long(),), weights, accumulate=True)


def prefix_sums_by_doubling(values: Tensor) -> Tensor:
    """Return `prefix_sums` in log₂ n elementwise steps (Hillis and Steele 1986)."""
    step = 1
    while step < len(values):
        values = torch.cat([values[:step], values[step:] + values[:-step]])
        step *= 2
    return values


def _must_be_deterministic(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.are_deterministic_algorithms_enabled()
