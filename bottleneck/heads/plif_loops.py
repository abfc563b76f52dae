"""The loops of a `PLIF` on the CPU, compiled: each number is looked at once, not once for each step of a formula.

A number costs one random access on the way forward and two on the way back, to tables that a core's cache all but
holds; the arithmetic between them is free. What torch's own kernels would do instead writes index, offset and slope
of every number to memory, and adds histograms with one thread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .openmp import in_parallel

Array = NDArray[np.floating]

SMALLEST_SHARE = 1 << 16
"""Numbers that a thread is worth waking for: tenths of a millisecond."""


def values(inputs: Tensor, table: Tensor, interval: float) -> Tensor:
    """Return f of each number.

    Args:
        inputs: float32 or float64, any shape.
        table: f(l_i) and s_i of each piece, (P, 2), in the inputs' type.
        interval: T.
    """
    result = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    x, out, pairs = _flat(inputs), _flat(result), table.numpy()
    geometry = x.dtype.type(interval), x.dtype.type(2 * interval / len(pairs))
    shares = _shares(len(x), least=SMALLEST_SHARE)
    _values(x[:0], pairs, *geometry, out[:0])  # compiles it here: the stack of another thread may be small
    in_parallel([partial(_values, x[share], pairs, *geometry, out[share]) for share in shares])
    return result


def gradients(inputs: Tensor, upstream: Tensor, table: Tensor, interval: float) -> tuple[Tensor, Tensor]:
    """Return the gradient in each number, and of each piece the sums of ``upstream`` and of it times x − l_i.

    Args:
        inputs: float32 or float64, any shape.
        upstream: the gradient in f, of the same shape and type.
        table: f(l_i) and s_i of each piece, (P, 2), in the inputs' type.
        interval: T.

    Returns:
        like ``inputs``, and float64, (P, 2): the same to the bit for the same number of threads.
    """
    result = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    x, g, out, pairs = _flat(inputs), _flat(upstream), _flat(result), table.numpy()
    geometry = x.dtype.type(interval), x.dtype.type(2 * interval / len(pairs))
    # Each thread has sums of its own: fewer threads where adding these up would be the larger part.
    shares = _shares(len(x), least=max(SMALLEST_SHARE, len(pairs)))
    sums = np.zeros((len(shares), *pairs.shape))
    _gradients(x[:0], g[:0], pairs, *geometry, sums[0], out[:0])
    in_parallel([
        partial(_gradients, x[share], g[share], pairs, *geometry, own, out[share])
        for share, own in zip(shares, sums, strict=True)
    ])  # fmt: skip
    return result, torch.from_numpy(sums.sum(0))


def _flat(tensor: Tensor) -> Array:
    flat: Array = tensor.detach().reshape(-1).contiguous().numpy()
    return flat


def _shares(count: int, *, least: int) -> list[slice]:
    """Cut so many numbers into equal shares, one a thread, each of at least so many."""
    threads = max(1, min(torch.get_num_threads(), count // least))
    ends = [count * thread // threads for thread in range(threads + 1)]
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


def _compiled(loop: Callable[..., None]) -> Callable[..., None]:
    """Compile a loop on its first call, and keep the machine code for other processes where there is a place for it."""
    make = partial(numba.njit, nogil=True, error_model="numpy")
    try:
        kept: Callable[..., None] = make(cache=True)(loop)
    except RuntimeError:  # neither beside this file nor in the user's cache folder
        kept = make()(loop)
    return kept


@_compiled
def _values(x: Array, table: Array, interval: np.floating, width: np.floating, out: Array) -> None:
    kind = x.dtype.type
    first, last, per_width = kind(0), kind(len(table) - 1), kind(1) / width
    for n in range(len(x)):
        place = (x[n] + interval) * per_width  # in pieces, from −T
        inside = place if place > first else first  # NaN too, and shows in the offset
        whole = np.int32(inside if inside < last else last)
        i = np.uint32(whole)  # of an unsigned index numba knows that it does not count from the end
        out[n] = table[i, 0] + table[i, 1] * ((place - kind(whole)) * width)


@_compiled
def _gradients(
    x: Array, g: Array, table: Array, interval: np.floating, width: np.floating, sums: Array, out: Array
) -> None:
    kind = x.dtype.type
    first, last, per_width = kind(0), kind(len(table) - 1), kind(1) / width
    for n in range(len(x)):
        place = (x[n] + interval) * per_width
        inside = place if place > first else first
        whole = np.int32(inside if inside < last else last)
        i = np.uint32(whole)
        offset = (place - kind(whole)) * width
        # At an infinite input, as of a token masked by its bias, no slope's derivative is a number.
        if math.isinf(offset):
            offset = first
        out[n] = g[n] * table[i, 1]
        sums[i, 0] += g[n]
        sums[i, 1] += g[n] * offset
