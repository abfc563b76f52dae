"""From blocks of rows to a spectrum: which method, what it needs, and no number that is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigurationError, MatrixError
from .base import Spectrum, SpectrumMethod
from .dense import Dense
from .gram import RESOLUTION, Gram
from .precision import Provenance
from .processes import ALONE, Processes
from .rules import MARGIN, tolerance
from .saved import SavedState
from .sketch import COPIES as SKETCH_COPIES
from .sketch import Sketch
from .tsqr import TSQR

METHODS = ("auto", "dense", "gram", "tsqr", "sketch", "factored")
DEFAULT_MEMORY = 8 << 30
"""Bytes a computation may take when nobody says otherwise."""
DEFAULT_WIDTH = 1024
"""Width of a sketch: beyond any output layer's rank bound, within any machine's memory."""
DENSE_COPIES = 4
"""Float64 copies of the matrix that the dense method holds at its peak: rows, matrix, LAPACK's copy and workspace."""
LARGEST_INDEX = 2**31 - 1
"""LAPACK is built with 32-bit integers: what lies beyond crashes it, or returns garbage."""
GRAM_COPIES = 1
"""M × M float64 matrices that gram holds at its peak: everything happens in place."""
TSQR_COPIES = 3
"""M × M float64 matrices that tsqr holds at its peak: the triangle, the centred one, LAPACK's copy."""
SMALL = 1 << 24
"""Below so many entries the dense method takes seconds: no reason to give up accuracy."""


def choose(
    method: str,
    *,
    shape: tuple[int, int],
    eps: float,
    max_memory: int = DEFAULT_MEMORY,
    width: int = DEFAULT_WIDTH,
    seed: int | tuple[int, ...] = 0,
) -> SpectrumMethod:
    """Return the method for a T × M matrix.

    Args:
        method: ``"dense"``, ``"gram"``, ``"tsqr"``, ``"sketch"``, or ``"auto"``: dense for small or wide matrices, tsqr
            where Press's tolerance lies below what gram resolves, gram for the rest, and a sketch where none fits.
        shape: (T, M).
        eps: roundoff of the numbers.
        max_memory: bytes.
        width: k of a sketch.
        seed: of a sketch.

    Raises:
        ConfigurationError: for an unknown method.
        MatrixError: when no method fits into the memory.
    """
    _check_name(method)
    T, M = shape
    needed = {
        "dense": DENSE_COPIES * 8 * T * M,
        "gram": GRAM_COPIES * 8 * M * M,
        "tsqr": TSQR_COPIES * 8 * M * M,
        "sketch": SKETCH_COPIES * 8 * M * width,
    }
    entries = {"dense": T * M, "gram": M * M, "tsqr": M * M, "sketch": M * width}
    if method == "auto":
        coarse = tolerance(1.0, shape, eps, "press") / MARGIN >= RESOLUTION
        streamed = "gram" if coarse else "tsqr"
        method = streamed if T >= M and T * M > SMALL else "dense"
        if (needed[method] > max_memory or entries[method] > LARGEST_INDEX) and needed["sketch"] <= max_memory:
            method = "sketch"
    if entries[method] > LARGEST_INDEX:
        raise MatrixError(
            f"the {method} method would hand LAPACK an array of {entries[method]:,} numbers, and it counts to "
            f"{LARGEST_INDEX:,}: use --method sketch, or the run itself as SOURCE when its head is log-linear"
        )
    if needed[method] > max_memory:
        raise MatrixError(
            f"the {method} method needs {_size(needed[method])} for a {T:,} × {M:,} matrix, more than the "
            f"{_size(max_memory)} allowed: raise --max-memory, or measure fewer contexts"
        )
    return _make(method, M, width, seed)


def _size(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _make(method: str, columns: int, width: int, seed: int | tuple[int, ...] = 0) -> SpectrumMethod:
    if method == "sketch":
        return Sketch(columns, width=width, seed=seed)
    made: dict[str, Callable[[int], SpectrumMethod]] = {"dense": Dense, "gram": Gram, "tsqr": TSQR}
    return made["dense" if method == "auto" else method](columns)


def singular_values(
    blocks: Iterable[ArrayLike] | NDArray[Any], *, method: str = "auto", max_memory: int = DEFAULT_MEMORY
) -> Spectrum:
    """Return the singular values of a matrix given whole or as consecutive blocks of rows.

    ``method="auto"`` on an iterator of unknown length is dense: say ``"gram"`` or ``"tsqr"`` to stream it.

    Args:
        blocks: (T, M), or an iterable of (n, M) arrays or tensors.
        method: see `choose`.
        max_memory: bytes, checked where the shape is known beforehand.

    Raises:
        ConfigurationError: for an unknown method.
        MatrixError: empty, not two-dimensional, ragged or not finite.

    Example:
        >>> import numpy as np
        >>> singular_values(np.diag([3.0, 2.0, 1.0])).values.round(6).tolist()
        [3.0, 2.0, 1.0]
    """
    _check_name(method)
    whole = as_array(blocks) if hasattr(blocks, "shape") else None
    if whole is not None:
        check_shape(whole.shape, "the matrix")
        provenance = Provenance()
        provenance.watch(whole)
        chosen = choose(method, shape=whole.shape, eps=provenance.precision().value, max_memory=max_memory)
        rows_at_once = max(1, (64 << 20) // (8 * whole.shape[1]))
        return measure(
            lambda done: (whole[start : start + rows_at_once] for start in range(done, len(whole), rows_at_once)),
            chosen,
        )
    iterator = iter(blocks)
    first = next(iterator, None)
    if first is None:
        raise MatrixError("the matrix is empty: there are no rows to measure")
    shape = as_array(first).shape
    check_shape(shape, "a block of rows")
    again = chain([first], iterator) if iterator is blocks else blocks
    return measure(again, _make(method, shape[1], DEFAULT_WIDTH))


def measure(
    blocks: Iterable[ArrayLike] | Callable[[int], Iterable[ArrayLike]],
    method: SpectrumMethod,
    *,
    saved: SavedState | None = None,
    processes: Processes = ALONE,
) -> Spectrum:
    """Feed consecutive blocks of rows to a method, checked and in float64, and return the spectrum.

    Args:
        blocks: (n, M) arrays or tensors; or a function that takes a number of rows and returns the blocks behind them.
        method: what to compute it with.
        saved: where to keep the state of a long computation of one pass; needs the function.
        processes: this process's partners, each of which is given other blocks.
    """
    if method.passes > 1 and isinstance(blocks, Iterator):
        raise MatrixError(f"the {method.name} method needs the rows {method.passes} times: give an array or a store")
    for passed in range(method.passes):
        if passed:
            processes.sum_up(method)
            method.end_pass()
        done = saved.restore(method) if saved else 0
        remaining = blocks(done) if callable(blocks) else blocks
        finite = checked(remaining, start=done, may_be_empty=done > 0 or not processes.first)
        for rows in gathered(finite, method.rows_at_once):
            method.update(np.asarray(rows, dtype=np.float64))
            done += len(rows)
            if saved:
                saved.offer(method, done)
    spectrum = processes.finish(method)
    if saved:
        saved.forget()
    return spectrum


def gathered(blocks: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """Yield the blocks joined until each but the last has ``rows`` rows or more."""
    waiting: list[NDArray[Any]] = []
    for block in blocks:
        # A block that waits is copied: its maker may use the memory again.
        waiting.append(block if len(block) >= rows else np.array(block))
        if sum(map(len, waiting)) >= rows:
            yield waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def checked(
    blocks: Iterable[Any], *, what: str = "the matrix", start: int = 0, may_be_empty: bool = False
) -> Iterator[NDArray[Any]]:
    """Yield the blocks as arrays; `MatrixError` names the first row and column that is not finite.

    ``start`` is the first block's first row.
    """
    columns = None
    for block in blocks:
        rows = as_array(block)
        check_shape(rows.shape, "a block of rows")
        if columns is not None and rows.shape[1] != columns:
            raise MatrixError(f"the block at row {start} has {rows.shape[1]} columns, the ones before it {columns}")
        columns = rows.shape[1]
        # A sum is finite only if all its terms are: one pass without an array of answers. Overflow asks again.
        with np.errstate(over="ignore", invalid="ignore"):
            finite = bool(np.isfinite(rows.sum())) or bool(np.isfinite(rows).all())
        if not finite:
            row, column = np.argwhere(~np.isfinite(rows))[0]
            raise MatrixError(
                f"{what} holds {rows[row, column]} at row {start + row}, column {column}: only finite "
                "numbers can be measured; mask such tokens out or fix what made them"
            )
        yield rows
        start += len(rows)
    if columns is None and not may_be_empty:
        raise MatrixError(f"{what} is empty: there are no rows to measure")


def check_shape(shape: tuple[int, ...], what: str) -> None:
    """Refuse what is not a two-dimensional matrix with at least one row and column."""
    if len(shape) != 2:
        raise MatrixError(f"{what} must have two dimensions (contexts × tokens), not shape {tuple(shape)}")
    if 0 in shape:
        raise MatrixError(f"{what} is empty: its shape is {tuple(shape)}")


def as_array(block: Any) -> NDArray[Any]:
    """Return a NumPy array of float16, float32 or float64; tensors are taken off their device."""
    if hasattr(block, "detach"):
        block = block.detach().cpu()
        block = block.float() if str(block.dtype) == "torch.bfloat16" else block
    try:
        array = np.asarray(block)
    except TypeError as error:  # torch's 8-bit floats
        raise MatrixError(f"a matrix must hold real numbers of 16 bits or more, not {block.dtype}") from error
    if array.dtype.kind not in "fiub":
        raise MatrixError(f"a matrix must hold real numbers, not {array.dtype}")
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_name(method: str) -> None:
    if method not in METHODS:
        raise ConfigurationError(f"unknown method {method!r}; known methods are {', '.join(METHODS)}")
    if method == "factored":
        raise ConfigurationError(
            "the factored method needs a log-linear head (Softmax or MoC) and its hidden states, not a matrix: "
            "give the run itself as SOURCE, or use --method auto"
        )
