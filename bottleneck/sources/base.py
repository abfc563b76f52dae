"""What can be measured: a matrix of log-probabilities that comes in blocks of rows, with its provenance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..heads import RankBound
from ..models.text import Text
from ..spectrum import Precision

BLOCK_BYTES = 16 << 20
"""One block of rows: it stays in the last-level cache of most machines, and its overhead is nothing."""


class Block(NamedTuple):
    """Consecutive rows of A = log P."""

    start: int
    """The first row's number."""
    log_probs: NDArray[Any]
    """(n, M), natural logarithms."""


UNKNOWN = RankBound(None, None, "nothing is known of what made the matrix")


class FactorRows(NamedTuple):
    """A = X Yᵀ, with the rows of X in blocks."""

    left: Callable[[Iterable[range]], Iterator[NDArray[np.float64]]]
    """Takes ascending ranges of rows and yields an (n, r) block for each."""
    right: NDArray[np.float64]
    """Y, (M, r)."""


class Work(NamedTuple):
    """What it takes to make all rows once, known before any is made."""

    operations: float
    """Floating-point operations of the model, its output layer included."""
    memory_bytes: int
    """Of the model and its hidden states."""
    factor_columns: int | None
    """Columns of the thin factors, when the matrix has them."""


class Source(ABC):
    """A T × M matrix of log-probabilities. Subclasses are final."""

    shape: tuple[int, int]
    """(T, M)."""
    description: Mapping[str, Any]
    """``path``, ``kind``, and ``head``, ``corpus``, ``split`` where they are known."""
    bound: RankBound
    embedding_size: int | None
    dtype: str
    """``"float32"`` or ``"float64"``, the type of the blocks."""
    targets: NDArray[np.int64] | None
    """(T,), the token that came after each context, where it is known."""
    text: Text | None = None
    """What the rows predict, where it is known."""
    identity: Mapping[str, str]
    """Hashes of all that decides the numbers: an interrupted dump continues only where they agree."""

    @property
    @abstractmethod
    def precision(self) -> Precision:
        """The roundoff of the least precise step that made the numbers."""

    @property
    def exponent(self) -> int:
        """Return e, when the matrix is measured times 2^−e because its squares would leave float64's range."""
        return 0

    @property
    def caution(self) -> str:
        """Return what in the numbers makes any rank doubtful, in a sentence, or nothing."""
        return ""

    @abstractmethod
    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield the rows of ascending ranges, a block for each; by default all rows in `ranges`.

        Numbers may be −∞, and nothing else that is not finite. Of what lies between the ranges as little as possible
        is computed.
        """

    def ranges(self, rows: int | None = None) -> list[range]:
        """Return all rows in ranges of ``rows``, by default `rows_at_once`, the last one shorter."""
        at_once, contexts = rows or self.rows_at_once(), self.shape[0]
        return [range(start, min(start + at_once, contexts)) for start in range(0, contexts, at_once)]

    def entries(self) -> Iterator[NDArray[Any]]:
        """Yield blocks of the numbers that `precision` is of: the rows, or logits before they are normalized."""
        return (block.log_probs for block in self.blocks())

    def factors(self) -> FactorRows | None:
        """Return thin factors of the matrix when it has them."""
        return None

    def work(self) -> Work:
        """Return what it takes to make all rows once; nothing of a model is run."""
        return Work(0.0, 0, None)

    def variants(self) -> Mapping[str, Source]:
        """Return matrices that are reported beside this one, by the report's key for them."""
        return {}

    def rows_at_once(self) -> int:
        """Return how many rows fill one block."""
        return min(self.shape[0], max(1, BLOCK_BYTES // (np.dtype(self.dtype).itemsize * self.shape[1])))
