"""One spectrum from the rows of several processes: their states are combined in the first, which decomposes."""

from __future__ import annotations

from ..parallel import Processes
from .base import Spectrum, SpectrumMethod


def finish(method: SpectrumMethod, processes: Processes) -> Spectrum:
    """Combine the states of all processes, decompose in the first, and return the spectrum in all of them."""
    if processes.count > 1:
        combine(method, processes)
    return processes.in_first(method.finish)


def sum_up(method: SpectrumMethod, processes: Processes) -> None:
    """Give every process the sum of what a method shares between its passes."""
    for name in method.shared:
        setattr(method, name, processes.sum(getattr(method, name)))


def combine(method: SpectrumMethod, processes: Processes) -> None:
    """Bring the states of all processes together in the first; the others' are left as they are.

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
            method.merge({name: processes.receive(origin, own.device) for name, own in method.state().items()})
        distance *= 2
