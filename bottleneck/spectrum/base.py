"""What a method that computes a spectrum is: a state, and four functions of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from .arithmetic import Arithmetic, Spectra
from .host import Host
from .precision import EPS

State = tuple[Tensor, ...]


class Stream(NamedTuple):
    """The rows so far: the state of a method, and the sums that its spectrum is checked against."""

    state: State
    totals: Tensor
    """Number of rows, ‖A‖²_F, the sum of the squares of the rows' means, and the number of blocks that are not 0."""


class SpectrumMethod(ABC):
    """A streamed singular-value computation; all that it knows of the rows is a state, a tuple of tensors.

    Saving a computation, continuing it and sharing it among processes are the state's: see `compute`. Subclasses are
    final, one per file, and have the algorithm's name in the literature; what they cost and when they are chosen stands
    in `choice`.

    Args:
        columns: number of columns M of the rows.
        arithmetic: arithmetic of the device to compute on; by default the CPU's.
    """

    name: ClassVar[str]
    resolution: ClassVar[float] = EPS["float64"]
    """Least error of its singular values, relative to the largest."""
    block: tuple[int, str] = (256, "C")
    """Number of rows that `add` takes at once, and their order in memory: row by row (C) or column by column (F)."""

    def __init__(self, columns: Any, *, arithmetic: Arithmetic | None = None) -> None:
        self.columns: int = columns
        self.arithmetic = arithmetic or Host()

    @abstractmethod
    def init(self) -> State:
        """Return the state without any rows."""

    @abstractmethod
    def add(self, state: State, rows: Tensor) -> State:
        """Return the state with more rows: float64, (n, M).

        Both arguments may be overwritten; if memory runs out, the state is unchanged.
        """

    @abstractmethod
    def merge(self, one: State, other: State) -> State:
        """Return the state of the rows of both."""

    @abstractmethod
    def decompose(self, stream: Stream, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        """Return the singular values of all rows, in any order; the state is unchanged.

        Args:
            stream: the state, with its totals.
            arithmetic: arithmetic that decomposes.
            careful: whether to use the second choice of routine, after the first has failed.
        """
