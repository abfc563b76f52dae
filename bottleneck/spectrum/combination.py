"""Combine the states of several processes in the first, which computes the spectrum of all rows."""

from __future__ import annotations

from ..core.parallel import Processes
from .base import SpectrumMethod
from .values import Spectrum


def finish(method: SpectrumMethod, processes: Processes) -> Spectrum:
    """Combine the states of all processes, decompose in the first, and return the spectrum in all of them."""
    if processes.count > 1:
        combine(method, processes)
    return processes.in_first(method.finish)


def sum_up(method: SpectrumMethod, processes: Processes) -> None:
    """Give every process the sums that a method shares between its passes."""
    for name in method.shared:
        setattr(method, name, processes.sum(getattr(method, name)))


def combine(method: SpectrumMethod, processes: Processes) -> None:
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
