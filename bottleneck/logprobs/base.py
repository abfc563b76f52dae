"""What can be measured: a matrix of log-probabilities that comes in blocks of rows, with its provenance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..spectrum import Precision

if TYPE_CHECKING:
    from torch import Tensor

BLOCK_BYTES = 16 << 20
"""One block of rows: it stays in the last-level cache of most machines, and its overhead is nothing."""


class Block(NamedTuple):
    """Consecutive rows of A = log P."""

    start: int
    """The first row's number."""
    log_probs: NDArray[Any]
    """(n, M), natural logarithms."""


@dataclass(frozen=True)
class Bound:
    """What algebra says of the rank; ``None`` where it says nothing."""

    raw: int | None
    centered: int | None
    why: str


UNKNOWN = Bound(None, None, "nothing is known of what made the matrix")


class FactorRows(NamedTuple):
    """A = X Yᵀ, with the rows of X in blocks."""

    left: Callable[[Callable[[int], bool]], Iterator[NDArray[np.float64]]]
    """Takes which blocks are wanted, by their first row, and yields (n, r) blocks."""
    right: NDArray[np.float64]
    """Y, (M, r)."""


class HeadFunction(NamedTuple):
    """A model's output layer and what it is given."""

    log_prob: Callable[[Tensor], Tensor]
    """Maps hidden states (n, hidden_size) to log P (n, M), differentiably."""
    hidden: Callable[[int, Callable[[int], bool]], Iterator[tuple[int, Tensor]]]
    """Takes how many rows at once and which blocks are wanted, by their first row; yields first row and H of each."""
    weight: Tensor | None
    """W, (M, d), when the logits are linear in d context directions."""


class Work(NamedTuple):
    """What it takes to make all rows once, known before any is made."""

    operations: float
    """Floating-point operations of the model, its output layer included."""
    memory_bytes: int
    """Of the model and its hidden states."""
    factor_columns: int | None
    """Columns of the thin factors, when the matrix has them."""


class Source(ABC):
    """A T × M matrix of log-probabilities. Subclasses are final, one kind a file under ``sources/``."""

    shape: tuple[int, int]
    """(T, M)."""
    description: Mapping[str, Any]
    """``path``, ``kind``, and ``head``, ``corpus``, ``split`` where they are known."""
    bound: Bound
    embedding_size: int | None
    dtype: str
    """``"float32"`` or ``"float64"``, the type of the blocks."""
    targets: NDArray[np.int64] | None
    """(T,), the token that came after each context, where it is known."""
    passes_minus_inf: bool = False
    """Whether −∞ is passed on, not refused: for a reader that drops such columns."""
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
    def blocks(self, rows: int | None = None, *, wanted: Callable[[int], bool] = lambda start: True) -> Iterator[Block]:
        """Yield the rows in order, ``rows`` at once (by default about `BLOCK_BYTES`), the last block shorter.

        A block whose first row is not ``wanted`` is left out, and as little as possible is computed for it.
        """

    def entries(self) -> Iterator[NDArray[Any]]:
        """Yield blocks of the numbers that `precision` is of: the rows, or logits before they are normalized."""
        return (block.log_probs for block in self.blocks())

    def factors(self) -> FactorRows | None:
        """Return thin factors of the matrix when it has them."""
        return None

    def head(self) -> HeadFunction | None:
        """Return the output layer and its inputs when there is a model."""
        return None

    def work(self) -> Work:
        """Return what it takes to make all rows once; nothing of a model is run."""
        return Work(0.0, 0, None)

    def variants(self) -> Mapping[str, Source]:
        """Return matrices that are reported beside this one, by the report's key for them."""
        return {}

    def tokens(self, ids: list[int]) -> list[str]:
        """Return each token as text: its number where the tokens are not known."""
        return [f"<{token}>" for token in ids]

    def text_before(self, row: int, length: int) -> str:
        """Return the text of the ``length`` tokens before the one that a row predicts; empty where it is not known."""
        return ""

    def sentence(self, row: int, length: int) -> str:
        """Return the sentence of the token that a row predicts, at most ``length`` tokens to either side of it."""
        return ""

    def rows_at_once(self) -> int:
        """Return how many rows fill one block."""
        return min(self.shape[0], max(1, BLOCK_BYTES // (np.dtype(self.dtype).itemsize * self.shape[1])))


def sentence_around(place: int, ends: Callable[[int], bool], *, tokens: int, length: int) -> slice:
    """Return where the sentence of one token lies.

    Args:
        place: the token's number in the text.
        ends: whether the token of a number ends a sentence.
        tokens: of the text.
        length: how far to look to either side.
    """
    first, last = max(0, place - length), min(tokens - 1, place + length)
    start = next((number + 1 for number in range(place - 1, first - 1, -1) if ends(number)), first)
    stop = next((number + 1 for number in range(place, last + 1) if ends(number)), last + 1)
    return slice(start, stop)
