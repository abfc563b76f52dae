"""From blocks of rows to a spectrum, and no number that is not finite on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import MatrixError
from .accelerator import on
from .base import Spectrum, SpectrumMethod
from .choice import check_name, choose, make
from .inspection import Inspection
from .precision import EPS
from .processes import ALONE, Processes
from .saved import SavedState


def singular_values(
    blocks: Iterable[ArrayLike] | NDArray[Any],
    *,
    method: str = "auto",
    max_memory: int | None = None,
    device: str = "cpu",
) -> Spectrum:
    """Return the singular values of a matrix given whole or as consecutive blocks of rows.

    ``method="auto"`` on an iterator of unknown length is dense: say ``"gram"`` or ``"tsqr"`` to stream it. What gram
    finds below 1.2e-7 σ_1 is roundoff, whatever eps the values are judged by afterwards; `rank` checks that.

    Args:
        blocks: (T, M), or an iterable of (n, M) arrays or tensors.
        method: see `choose`.
        max_memory: bytes of the device, checked where the shape is known beforehand.
        device: where to compute, ``"cpu"`` or ``"cuda"``.

    Raises:
        ConfigurationError: for an unknown method.
        MatrixError: empty, not two-dimensional, ragged or not finite.

    Example:
        >>> import numpy as np
        >>> singular_values(np.diag([3.0, 2.0, 1.0])).values.round(6).tolist()
        [3.0, 2.0, 1.0]
    """
    check_name(method)
    whole = as_array(blocks) if hasattr(blocks, "shape") else None
    if whole is not None:
        check_shape(whole.shape, "the matrix")
        rows_at_once = max(1, (64 << 20) // (8 * whole.shape[1]))

        def pieces(done: int) -> Iterator[NDArray[Any]]:
            return (whole[start : start + rows_at_once] for start in range(done, len(whole), rows_at_once))

        inspection = Inspection(len(whole), dtypes=[native_dtype(blocks)], language=False)
        for piece in checked(pieces(0)):
            inspection.watch(piece)
        eps = inspection.precision().value
        chosen = choose(method, shape=whole.shape, eps=eps, max_memory=max_memory, device=device).method
        return measure(pieces, chosen, exponent=inspection.exponent)
    iterator = iter(blocks)
    first = next(iterator, None)
    if first is None:
        raise MatrixError("the matrix is empty: there are no rows to measure")
    shape = as_array(first).shape
    check_shape(shape, "a block of rows")
    again = chain([first], iterator) if iterator is blocks else blocks
    return measure(again, make(method, shape[1], arithmetic=on(device)))


def measure(
    blocks: Iterable[ArrayLike] | Callable[[int], Iterable[ArrayLike]],
    method: SpectrumMethod,
    *,
    exponent: int = 0,
    saved: SavedState | None = None,
    processes: Processes = ALONE,
) -> Spectrum:
    """Feed consecutive blocks of rows to a method, checked and in float64, and return the spectrum.

    Args:
        blocks: (n, M) arrays or tensors; or a function that takes a number of rows and returns the blocks behind them.
        method: what to compute it with.
        exponent: e, when the rows are multiplied by 2^−e before they are squared; the spectrum is the matrix's own.
        saved: where to keep the state of a long computation; needs the function.
        processes: this process's partners, each of which is given other blocks.
    """
    if method.passes > 1 and isinstance(blocks, Iterator):
        raise MatrixError(f"the {method.name} method needs the rows {method.passes} times: give an array or a store")
    reached, done = saved.restore(method) if saved else (0, 0)
    for passed in range(reached, method.passes):
        if passed > reached:
            processes.sum_up(method)
            method.end_pass()
            done = 0
        remaining = blocks(done) if callable(blocks) else blocks
        finite = checked(remaining, start=done, may_be_empty=done > 0 or not processes.first)
        for rows in gathered(finite, method.rows_at_once):
            method.update(np.ldexp(rows, -exponent, dtype=np.float64) if exponent else rows)
            done += len(rows)
            if saved:
                saved.offer(method, passed, done)
    spectrum = processes.finish(method)
    if saved:
        saved.forget()
    return spectrum.scaled(exponent)


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
    blocks: Iterable[Any],
    *,
    what: str = "the matrix",
    start: int = 0,
    may_be_empty: bool = False,
    minus_inf: bool = False,
) -> Iterator[NDArray[Any]]:
    """Yield the blocks as arrays; `MatrixError` names the first row and column that is not finite.

    ``start`` is the first block's first row; ``minus_inf`` lets −∞ pass.
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
        if not finite and (bad := _first_bad(rows, minus_inf)) is not None:
            row, column = bad
            masked = rows[row, column] == -np.inf
            remedy = "'rank --inf drop-columns' leaves such tokens out" if masked else "fix what made it"
            raise MatrixError(
                f"{what} holds {rows[row, column]} at row {start + row}, column {column}: only finite "
                f"numbers can be measured; {remedy}"
            )
        yield rows
        start += len(rows)
    if columns is None and not may_be_empty:
        raise MatrixError(f"{what} is empty: there are no rows to measure")


def _first_bad(rows: NDArray[Any], minus_inf: bool) -> tuple[int, int] | None:
    bad = ~(rows < np.inf) if minus_inf else ~np.isfinite(rows)
    found = np.argwhere(bad)
    return (int(found[0, 0]), int(found[0, 1])) if len(found) else None


def check_shape(shape: tuple[int, ...], what: str) -> None:
    """Refuse what is not a two-dimensional matrix with at least one row and column."""
    if len(shape) != 2:
        raise MatrixError(f"{what} must have two dimensions (contexts × tokens), not shape {tuple(shape)}")
    if 0 in shape:
        raise MatrixError(f"{what} is empty: its shape is {tuple(shape)}")


def native_dtype(block: Any) -> str:
    """Return the floating type that an array or tensor has, as a key of `EPS`; whole numbers count as float64."""
    name = str(getattr(block, "dtype", "float64")).removeprefix("torch.")
    if name not in EPS:
        name = {"f2": "float16", "f4": "float32"}.get(name.lstrip("<>="), "float64")
    return name


def as_array(block: Any) -> NDArray[Any]:
    """Return a NumPy array of float16, float32 or float64; tensors are taken off their device.

    Types that NumPy does not have are widened to float32: `native_dtype` tells what they were.

    Raises:
        MatrixError: for numbers that are not real, or too small for float64.
    """
    narrow = native_dtype(block) not in ("float64", "float32", "float16")
    if hasattr(block, "detach"):
        block = block.detach().cpu()
        block = block.float() if narrow else block
    try:
        array = np.asarray(block)
        array = array.astype(np.float32) if narrow else array
    except TypeError as error:  # torch's 4-bit floats
        raise MatrixError(f"a matrix must hold real numbers of 8 bits or more, not {block.dtype}") from error
    if isinstance(array, np.ma.MaskedArray) or isinstance(block, np.ma.MaskedArray):
        raise MatrixError("a masked array has no rank: fill what is masked (numpy.ma.filled), or drop such columns")
    if array.dtype.kind not in "fiub":
        raise MatrixError(f"a matrix must hold real numbers, not {array.dtype}")
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        double = array.astype(np.float64)
        if array.dtype.kind == "f" and bool(((double == 0) & (array != 0)).any()):
            raise MatrixError("the matrix holds numbers too small for float64: multiply it by a power of two")
        return double
    return array.astype(array.dtype.newbyteorder("="), copy=False)
