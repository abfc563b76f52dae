"""Compute a spectrum from blocks of rows, and refuse entries that are not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.parallel import ALONE, Processes
from ..core.progress import SILENT_BAR, Bar
from ..errors import MatrixError
from .accelerator import arithmetic_for
from .base import Options, SpectrumMethod
from .blocks import as_array, check_shape, checked, gathered, is_array, native_dtype
from .choice import check_factors, choose, find
from .dense import Dense
from .inspection import Inspection
from .saved import SavedState
from .values import Spectrum


def singular_values(
    blocks: Iterable[ArrayLike] | NDArray[Any],
    *,
    method: str = "auto",
    max_memory: int | None = None,
    device: str = "cpu",
) -> Spectrum:
    """Return the singular values of a matrix given whole or as consecutive blocks of rows.

    ``method="auto"`` means ``"dense"`` for an iterator of unknown length; give ``"gram"`` or ``"tsqr"`` to stream it.
    Values of ``"gram"`` below 1.2e-7 σ_1 are roundoff for any eps; `rank` checks that.

    Args:
        blocks: (T, M), or an iterable of (n, M) arrays or tensors.
        method: see `choose`.
        max_memory: bytes of the device's memory, checked if the shape is known beforehand.
        device: device to compute on.

    Raises:
        ConfigurationError: for an unknown method.
        MatrixError: for a matrix that is empty, not two-dimensional, ragged or not finite.

    Example:
        >>> import numpy as np
        >>> singular_values(np.diag([3.0, 2.0, 1.0])).values.round(6).tolist()
        [3.0, 2.0, 1.0]
    """
    check_factors(method)
    whole = as_array(blocks) if is_array(blocks) else None
    if whole is not None:
        check_shape(whole.shape, "the matrix")
        rows_at_once = max(1, (64 << 20) // (8 * whole.shape[1]))

        def pieces(done: int) -> Iterator[NDArray[Any]]:
            return (whole[start : start + rows_at_once] for start in range(done, len(whole), rows_at_once))

        inspection = Inspection(len(whole), dtypes=[native_dtype(blocks)], language=False)
        for piece in checked(pieces(0)):
            inspection.watch(piece)
        eps = inspection.stored.value
        chosen = choose(method, shape=whole.shape, eps=eps, max_memory=max_memory, device=device).start()
        return measure(pieces, chosen, exponent=inspection.exponent)
    iterator = iter(blocks)
    first = next(iterator, None)
    if first is None:
        raise MatrixError("the matrix is empty: there are no rows to measure")
    shape = as_array(first).shape
    check_shape(shape, "a block of rows")
    again = chain([first], iterator) if iterator is blocks else blocks
    known = Dense if method == "auto" else find(method)
    return measure(again, known.build(shape[1], Options(arithmetic=arithmetic_for(device))))


def measure(
    blocks: Iterable[ArrayLike] | Callable[[int], Iterable[ArrayLike]],
    method: SpectrumMethod,
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
        saved: file that keeps the state of a long computation; needs ``blocks`` to be a function.
        processes: processes that share the computation, each with its own blocks.
        what: name of the matrix in errors.
        remedy: what the error for an entry of −∞ advises.
        bar: shows how many rows are taken, including those of a saved state, and when the decomposition begins.
    """
    if method.passes > 1 and isinstance(blocks, Iterator):
        raise MatrixError(f"the {method.name} method needs the rows {method.passes} times: give an array or a store")
    reached, done = saved.restore(method) if saved else (0, 0)
    for passed in range(reached, method.passes):
        if passed > reached:
            for name in method.shared:
                setattr(method, name, processes.sum(getattr(method, name)))
            method.end_pass()
            done = 0
        remaining = blocks(done) if callable(blocks) else blocks
        bar.advance(done)
        empty = done > 0 or not processes.first
        finite = checked(remaining, what=what, start=done, may_be_empty=empty, remedy=remedy)
        for rows in gathered(finite, method.rows_at_once):
            method.update(np.ldexp(rows, -exponent, dtype=np.float64) if exponent else rows)
            done += len(rows)
            bar.advance(len(rows))
            if saved:
                saved.offer(method, passed, done)
    bar.stage("decomposing the matrix, which may take minutes")
    if processes.count > 1:
        _combine(method, processes)
    spectrum = processes.in_first(method.finish)
    if saved:
        saved.forget()
    return spectrum.scaled(exponent)


def _combine(method: SpectrumMethod, processes: Processes) -> None:
    """Combine the states of all processes in the first process; the other processes keep theirs.

    Gram matrices are summed by all-reduce; triangles are merged pairwise, in ⌈log₂ P⌉ rounds.
    """
    if method.summed:
        method.restore({name: processes.sum(tensor) for name, tensor in method.state().items()})
        return
    index, distance = processes.index, 1
    while distance < processes.count:
        if index % (2 * distance) == distance:
            for tensor in method.state().values():
                processes.send(tensor, index - distance)
            return
        if index % (2 * distance) == 0 and index + distance < processes.count:
            origin = index + distance
            method.merge({name: processes.receive(origin, value.device) for name, value in method.state().items()})
        distance *= 2
