"""Compiled loops of a `PLIF` on the CPU: a tile of a few hundred numbers passes through all steps of the formula.

Each number takes one random access to a table in the forward pass and two in the backward pass; the arithmetic before
is vectorized. Torch's own kernels would write index, offset and slope of every number to memory, and add histograms on
one thread.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache, partial

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.floating]
Pairs = NDArray[np.complexfloating]
"""Pairs of numbers as real and imaginary part, so that both are loaded, added and stored in one access."""

SMALLEST_SHARE = 1 << 16
"""Fewest numbers for a thread; fewer take less time than starting it."""
TILE = 256
"""Numbers whose pieces are computed before their random accesses, so that these do not wait for arithmetic."""
_MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def values(inputs: Tensor, table: Tensor, interval: float) -> Tensor:
    """Return f of each input, float32 or float64, given f(l_i) and s_i of each piece, (P, 2), in the inputs' type."""
    result = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    x, out, pairs = _flat(inputs), _flat(result), _pairs(table)
    geometry = x.dtype.type(interval), x.dtype.type(2 * interval / len(pairs))
    shares = _shares(len(x), least=SMALLEST_SHARE)
    _values(x[:0], pairs, *geometry, out[:0])  # compile on this thread: the stack of another may be too small
    in_parallel([partial(_values, x[share], pairs, *geometry, out[share]) for share in shares])
    return result


def gradients(inputs: Tensor, upstream: Tensor, table: Tensor, interval: float) -> tuple[Tensor, Tensor]:
    """Return the gradient in each input, and for each piece Σ ``upstream`` and Σ ``upstream`` · (x − l_i).

    Arguments are as for `values`; ``upstream`` is the gradient in f. The sums are float64, (P, 2), and bitwise
    reproducible for the same number of threads.
    """
    result = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    x, g, out, pairs = _flat(inputs), _flat(upstream), _flat(result), _pairs(table)
    geometry = x.dtype.type(interval), x.dtype.type(2 * interval / len(pairs))
    # Each thread has its own sums of all pieces; more threads than this would spend most of the time adding them up.
    shares = _shares(len(x), least=max(SMALLEST_SHARE, len(pairs)))
    sums = np.zeros((len(shares), len(pairs)), np.complex128)
    _gradients(x[:0], g[:0], pairs, *geometry, sums[0], out[:0])
    in_parallel([
        partial(_gradients, x[share], g[share], pairs, *geometry, thread_sums, out[share])
        for share, thread_sums in zip(shares, sums, strict=True)
    ])  # fmt: skip
    return result, torch.view_as_real(torch.from_numpy(sums.sum(0)))


def _flat(tensor: Tensor) -> Array:
    flat: Array = tensor.detach().reshape(-1).contiguous().numpy()
    return flat


def _pairs(tensor: Tensor) -> Pairs:
    pairs: Pairs = torch.view_as_complex(tensor).numpy()
    return pairs


def _shares(count: int, *, least: int) -> list[slice]:
    """Cut ``count`` numbers into equal shares, one for each thread, each of at least ``least`` numbers."""
    threads = max(1, min(torch.get_num_threads(), count // least))
    ends = [count * thread // threads for thread in range(threads + 1)]
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


def _compiled(loop: Callable[..., None]) -> Callable[..., None]:
    """Compile a loop on its first call, and cache the machine code for other processes where a folder is writable."""
    compiler = partial(numba.njit, nogil=True, error_model="numpy")
    try:
        compiled: Callable[..., None] = compiler(cache=True)(loop)
    except RuntimeError:  # neither this file's folder nor the user's cache folder is writable
        compiled = compiler()(loop)
    return compiled


@_compiled
def _places(
    x: Array, pieces: int, interval: np.floating, width: np.floating, index: NDArray[np.int32], offset: Array
) -> None:
    """Compute each number's piece i and x − l_i. The loop reads no table, so that the compiler vectorizes it."""
    kind = x.dtype.type
    first, last, per_width = kind(0), kind(pieces - 1), kind(1) / width
    for n in range(len(x)):
        position = (x[n] + interval) * per_width  # distance from −T, in pieces
        inside = position if position > first else first  # also for NaN, whose offset is NaN
        index[n] = np.int32(inside if inside < last else last)
        offset[n] = (position - kind(index[n])) * width


@_compiled
def _values(x: Array, table: Pairs, interval: np.floating, width: np.floating, out: Array) -> None:
    index, offset = np.empty(TILE, np.int32), np.empty(TILE, x.dtype)
    for start in range(0, len(x), TILE):
        tile, f = x[start : start + TILE], out[start : start + TILE]
        _places(tile, len(table), interval, width, index, offset)
        for n in range(len(tile)):
            piece = table[np.uint32(index[n])]  # numba omits the check for negative indices
            f[n] = piece.real + piece.imag * offset[n]


@_compiled
def _gradients(
    x: Array, g: Array, table: Pairs, interval: np.floating, width: np.floating, sums: Pairs, out: Array
) -> None:
    index, offset = np.empty(TILE, np.int32), np.empty(TILE, x.dtype)
    for start in range(0, len(x), TILE):
        tile, upstream, gradient = x[start : start + TILE], g[start : start + TILE], out[start : start + TILE]
        _places(tile, len(table), interval, width, index, offset)
        for n in range(len(tile)):
            # An infinite input, such as the logit of a token masked by its bias, adds nothing to a slope's gradient.
            offset[n] = upstream[n] * (x.dtype.type(0) if math.isinf(offset[n]) else offset[n])
        for n in range(len(tile)):
            i = np.uint32(index[n])
            gradient[n] = upstream[n] * table[i].imag
            sums[i] += complex(upstream[n], offset[n])


def in_parallel(tasks: Sequence[Callable[[], None]]) -> None:
    """Call each task once, in parallel on the OpenMP threads of torch's kernels, or one after the other without them.

    Threads of another pool would compete with torch's: an idle OpenMP thread keeps its core busy for milliseconds.

    Args:
        tasks: one for each thread; they run in parallel while they have released Python's global interpreter lock.
    """
    runtime = _runtime()
    if runtime is None or len(tasks) < 2:
        for task in tasks:
            task()
        return
    errors: list[BaseException] = []
    done: list[int] = []

    def member(_: object) -> None:
        """Call this thread's tasks; there may be fewer threads than tasks."""
        try:
            for number in range(runtime.omp_get_thread_num(), len(tasks), runtime.omp_get_num_threads()):
                tasks[number]()
                done.append(number)
        except BaseException as error:  # an exception cannot pass through C code
            errors.append(error)

    # All of torch's threads take part: OpenMP would end those that a parallel region leaves out.
    runtime.GOMP_parallel(_MEMBER(member), None, max(len(tasks), torch.get_num_threads()), 0)
    if errors:
        raise errors[0]
    if len(done) < len(tasks):  # a signal interrupted a member before its ``try``, and C code dropped the exception
        raise KeyboardInterrupt


@cache
def _runtime() -> ctypes.CDLL | None:
    """Return torch's OpenMP library from the process's global scope, if it has GNU's entry points."""
    process = ctypes.CDLL(None)
    names = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"
    return process if all(hasattr(process, name) for name in names) else None
