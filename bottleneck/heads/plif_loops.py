"""The loops of a `PLIF` on the CPU, compiled: a few hundred numbers at a time go through all steps of the formula.

A number costs one random access on the way forward and two on the way back, to tables that a core's cache all but
holds; the arithmetic before them takes many numbers an instruction. What torch's own kernels would do instead writes
index, offset and slope of every number to memory, and adds histograms with one thread.
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
Pairs = NDArray[np.complexfloating]
"""Two numbers side by side, as real and imaginary part: they are loaded, added and stored as one."""

SMALLEST_SHARE = 1 << 16
"""Numbers that a thread is worth waking for: tenths of a millisecond."""
TILE = 256
"""Numbers whose pieces are found at a time, ahead of the random accesses, so that these wait for nothing."""


def values(inputs: Tensor, table: Tensor, interval: float) -> Tensor:
    """Return f of each float32 or float64 number, given f(l_i) and s_i of each piece, (P, 2), in the inputs' type."""
    result = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    x, out, pairs = _flat(inputs), _flat(result), _pairs(table)
    geometry = x.dtype.type(interval), x.dtype.type(2 * interval / len(pairs))
    shares = _shares(len(x), least=SMALLEST_SHARE)
    _values(x[:0], pairs, *geometry, out[:0])  # compiles it here: the stack of another thread may be small
    in_parallel([partial(_values, x[share], pairs, *geometry, out[share]) for share in shares])
    return result


def gradients(inputs: Tensor, upstream: Tensor, table: Tensor, interval: float) -> tuple[Tensor, Tensor]:
    """Return the gradient in each number, and of each piece the sums of ``upstream`` and of it times x − l_i.

    Arguments are as for `values`; ``upstream`` is the gradient in f. The sums are float64, (P, 2), the same to the bit
    for the same number of threads.
    """
    result = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    x, g, out, pairs = _flat(inputs), _flat(upstream), _flat(result), _pairs(table)
    geometry = x.dtype.type(interval), x.dtype.type(2 * interval / len(pairs))
    # Each thread has sums of its own: fewer threads where adding these up would be the larger part.
    shares = _shares(len(x), least=max(SMALLEST_SHARE, len(pairs)))
    sums = np.zeros((len(shares), len(pairs)), np.complex128)
    _gradients(x[:0], g[:0], pairs, *geometry, sums[0], out[:0])
    in_parallel([
        partial(_gradients, x[share], g[share], pairs, *geometry, own, out[share])
        for share, own in zip(shares, sums, strict=True)
    ])  # fmt: skip
    return result, torch.view_as_real(torch.from_numpy(sums.sum(0)))


def _flat(tensor: Tensor) -> Array:
    flat: Array = tensor.detach().reshape(-1).contiguous().numpy()
    return flat


def _pairs(tensor: Tensor) -> Pairs:
    pairs: Pairs = torch.view_as_complex(tensor).numpy()
    return pairs


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
def _places(
    x: Array, pieces: int, interval: np.floating, width: np.floating, index: NDArray[np.int32], offset: Array
) -> None:
    """Find each number's piece i and x − l_i: without a look into a table, so many numbers an instruction."""
    kind = x.dtype.type
    first, last, per_width = kind(0), kind(pieces - 1), kind(1) / width
    for n in range(len(x)):
        place = (x[n] + interval) * per_width  # in pieces, from −T
        inside = place if place > first else first  # NaN too, and shows in the offset
        index[n] = np.int32(inside if inside < last else last)
        offset[n] = (place - kind(index[n])) * width


@_compiled
def _values(x: Array, table: Pairs, interval: np.floating, width: np.floating, out: Array) -> None:
    index, offset = np.empty(TILE, np.int32), np.empty(TILE, x.dtype)
    for start in range(0, len(x), TILE):
        tile, f = x[start : start + TILE], out[start : start + TILE]
        _places(tile, len(table), interval, width, index, offset)
        for n in range(len(tile)):
            piece = table[np.uint32(index[n])]  # of an unsigned index numba knows that it does not count from the end
            f[n] = piece.real + piece.imag * offset[n]


@_compiled
def _gradients(
    x: Array, g: Array, table: Pairs, interval: np.floating, width: np.floating, sums: Pairs, out: Array
) -> None:
    index, offset = np.empty(TILE, np.int32), np.empty(TILE, x.dtype)
    for start in range(0, len(x), TILE):
        tile, upstream, own = x[start : start + TILE], g[start : start + TILE], out[start : start + TILE]
        _places(tile, len(table), interval, width, index, offset)
        for n in range(len(tile)):
            # At an infinite input, as of a token masked by its bias, no slope's derivative is a number.
            offset[n] = upstream[n] * (x.dtype.type(0) if math.isinf(offset[n]) else offset[n])
        for n in range(len(tile)):
            i = np.uint32(index[n])
            own[n] = upstream[n] * table[i].imag
            sums[i] += complex(upstream[n], offset[n])
