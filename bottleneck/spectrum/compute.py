"""Compute a spectrum from blocks of rows, and refuse entries that are not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from numpy.typing import ArrayLike, NDArray

from ..core.devices import ask
from ..core.parallel import ALONE, Processes
from ..core.progress import SILENT_BAR, Bar
from ..errors import MatrixError, Parameter
from .base import SpectrumMethod, Stream
from .blocks import as_array, check_shape, checked, gathered, is_array, native_dtype
from .certificate import finish
from .choice import build, check_factors, choose
from .inspection import Inspection
from .saved import SavedState
from .settings import SpectrumSettings
from .sketch import RangeFinder
from .values import Spectrum

CPU = SpectrumSettings(device="cpu")


def matrix_spectrum(blocks: Iterable[ArrayLike] | NDArray[Any], how: SpectrumSettings = CPU) -> Spectrum:
    """Return the singular values of a matrix given whole or as consecutive blocks of rows.

    ``method="auto"`` means ``"dense"`` for an iterator of unknown length; give ``"gram"`` or ``"tsqr"`` to stream it.
    Values of ``"gram"`` below 1.2e-7 σ_1 are roundoff for any eps; `rank` checks that.

    Args:
        blocks: (T, M), or an iterable of (n, M) arrays or tensors.
        how: settings of the computation; the memory is checked if the shape is known beforehand.

    Raises:
        ConfigurationError: for an unknown method.
        MatrixError: for a matrix that is empty, not two-dimensional, ragged or not finite.

    Example:
        >>> import numpy as np
        >>> matrix_spectrum(np.diag([3.0, 2.0, 1.0])).values.round(6).tolist()
        [3.0, 2.0, 1.0]
    """
    check_factors(how.method)
    whole = as_array(blocks) if is_array(blocks) else None
    if whole is not None:
        check_shape(whole.shape, "the matrix")
        rows_at_once = max(1, (64 << 20) // (8 * whole.shape[1]))

        def pieces(done: int) -> Iterator[NDArray[Any]]:
            return (whole[start : start + rows_at_once] for start in range(done, len(whole), rows_at_once))

        inspection = Inspection(dtypes=[native_dtype(blocks)], language=False)
        for piece in checked(pieces(0)):
            inspection.watch(piece)
        inspection.check_digits()
        eps = inspection.stored.value
        chosen = choose(how, shape=whole.shape, eps=eps).start()
        return decompose(pieces, chosen, exponent=inspection.exponent)
    iterator = iter(blocks)
    first = next(iterator, None)
    if first is None:
        raise MatrixError("the matrix is empty: there are no rows to measure")
    shape = as_array(first).shape
    check_shape(shape, "a block of rows")
    again = chain([first], iterator) if iterator is blocks else blocks
    named = replace(how, method="dense") if how.method == "auto" else how
    return decompose(again, build(named, shape[1]))


def decompose(
    blocks: Iterable[ArrayLike] | Callable[[int], Iterable[ArrayLike]],
    method: SpectrumMethod | RangeFinder,
    *,
    exponent: int = 0,
    saved: SavedState | None = None,
    processes: Processes = ALONE,
    what: str = "the matrix",
    remedy: str = "leave out the columns of such tokens",
    bar: Bar = SILENT_BAR,
) -> Spectrum:
    """Feed consecutive blocks of rows to a method, checked and in float64, and return the spectrum.

    Args:
        blocks: (n, M) arrays or tensors; or a function that returns the blocks after a given number of rows.
        method: the method that computes the spectrum.
        exponent: e, if the rows are multiplied by 2^−e before they are squared; the result is scaled back.
        saved: files that keep the states of a long computation; needs ``blocks`` to be a function.
        processes: processes that share the computation, each with its own blocks.
        what: name of the matrix in errors.
        remedy: what the error for an entry of −∞ advises.
        bar: shows how many rows are taken, including those of a saved state, and when the decomposition begins.
    """
    feed = partial(
        _fed, blocks, exponent=exponent, saved=saved, first=processes.first, what=what, remedy=remedy, bar=bar
    )
    if isinstance(method, RangeFinder):
        if isinstance(blocks, Iterator):
            raise MatrixError(f"the {method.name} method needs the rows 2 times: give an array or a store")
        method = method.projection(processes.sum(feed(method).state[0]))
    stream = feed(method)
    bar.stage("decomposing the matrix, which may take minutes")
    stream = merged(method, stream, processes)
    spectrum = processes.in_first(lambda: finish(method, stream))
    if saved:
        saved.forget()
    return spectrum.scaled(exponent)


def _fed(
    blocks: Iterable[ArrayLike] | Callable[[int], Iterable[ArrayLike]],
    method: SpectrumMethod | RangeFinder,
    *,
    exponent: int,
    saved: SavedState | None,
    first: bool,
    what: str,
    remedy: str,
    bar: Bar,
) -> Stream:
    """Return the stream of all rows of this process; see `decompose`."""
    stream, done = (saved.restore(method) if saved else None) or (started(method), 0)
    bar.advance(done)
    remaining = blocks(done) if callable(blocks) else blocks
    finite = checked(remaining, what=what, start=done, may_be_empty=done > 0 or not first, remedy=remedy)
    for rows in gathered(finite, *method.block, exponent):
        stream = extended(method, stream, rows)
        done += len(rows)
        bar.advance(len(rows))
        if saved:
            saved.offer(stream)
    return stream


def started(method: SpectrumMethod | RangeFinder) -> Stream:
    """Return the stream without any rows; `MatrixError` when the device has no memory for it."""
    try:
        return Stream(method.init(), method.arithmetic.zeros(4))
    except torch.OutOfMemoryError as error:
        raise _no_memory("", method) from error


def extended(method: SpectrumMethod | RangeFinder, stream: Stream, rows: Any) -> Stream:
    """Return the stream with more rows: (n, M), an array or tensor of real numbers, which may be overwritten.

    When an accelerator runs out of memory, the rows are split in halves.

    Raises:
        MatrixError: when memory is too small for a single row.
    """
    try:
        taken = method.arithmetic.take(rows)
        means, flat = taken.mean(1), (taken if taken.is_contiguous() else taken.T).reshape(-1)
        squared = flat @ flat
        not_zero = bool(squared) or bool(flat.any())  # squares may underflow
        totals = torch.stack([means.new_tensor(len(means)), squared, means @ means, means.new_tensor(not_zero)])
        return Stream(method.add(stream.state, taken), stream.totals + totals)
    except torch.OutOfMemoryError as error:
        if len(rows) < 2:
            raise _no_memory("left for one row beside", method) from error
        ask(method.arithmetic.device, "empty_cache")
    half = len(rows) // 2
    return extended(method, extended(method, stream, rows[:half]), rows[half:])


def _no_memory(where: str, method: SpectrumMethod | RangeFinder) -> MatrixError:
    what = f"{method.arithmetic.device} has no memory {where or 'for'} the {method.name} method's matrices: use "
    return MatrixError(what, Parameter("device", "cpu"))


def merged(method: SpectrumMethod, stream: Stream, processes: Processes) -> Stream:
    """Return the stream of all processes in the first one; they merge pairwise, in ⌈log₂ P⌉ rounds."""
    index, distance = processes.index, 1
    while distance < processes.count:
        if index % (2 * distance) == distance:
            processes.send((*stream.state, stream.totals), index - distance)
            break
        if index % (2 * distance) == 0 and index + distance < processes.count:
            *state, totals = processes.receive(index + distance, method.arithmetic.device)
            stream = Stream(method.merge(stream.state, tuple(state)), stream.totals + totals)
        distance *= 2
    return stream
