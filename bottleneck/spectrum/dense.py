"""LAPACK on the whole matrix, for small matrices and as an oracle for the other methods."""

from __future__ import annotations

from abc import ABC
from typing import final

import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra, reflect_rows
from .base import SpectrumMethod, State, Stream


class KeptRows(SpectrumMethod, ABC):
    """A method whose state is the rows themselves, in float32 if that represents them exactly."""

    @final
    def init(self) -> State:
        """Return no rows."""
        return ()

    @final
    def add(self, state: State, rows: Tensor) -> State:
        """Keep a copy."""
        narrow = rows.float()
        return *state, narrow if torch.equal(narrow.double(), rows) else rows.clone()

    @final
    def merge(self, one: State, other: State) -> State:
        """Keep the rows of both: their order changes no singular value."""
        return one + other


@final
class Dense(KeptRows):
    """The float64 singular values of the matrix in memory, by LAPACK's divide and conquer (``gesdd``)."""

    name = "dense"

    def decompose(self, stream: Stream, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        """Decompose the matrix, and the row-centred one."""
        matrix = torch.cat(stream.state).to(arithmetic.device).double()
        return arithmetic.pair(matrix, reflect_rows(matrix)[:, 1:], careful=careful)
