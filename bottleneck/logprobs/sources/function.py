"""Any function from token ids to logits, measured as the matrix of its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigurationError, MatrixError, SourceError
from ...spectrum.blocks import as_array, native_dtype
from .matrix import MatrixSource

KEPT = 1 << 28
"""Bytes of answers in float64 that are kept from one pass to the next."""


@runtime_checkable
class Adapter(Protocol):
    """What a model of any framework offers to be measured.

    Example:
        >>> class Bigram:
        ...     vocab_size = 3
        ...     def logits(self, ids):
        ...         return np.eye(3)[ids]
        >>> from softmax_bottleneck import rank
        >>> rank(Bigram(), data=[[[0, 1, 2, 0]]]).rank.value
        3
    """

    vocab_size: int
    """M."""

    def logits(self, ids: NDArray[np.int64]) -> Any:
        """Map ids (B, L) to logits (B, L, M), or (B, M) of the last position, as NumPy or torch can read them."""


def from_function(function: Any, *, data: Any, vocab_size: int | None) -> MatrixSource:
    """Return the log-probabilities that a function's logits stand for, a row for each position it answers.

    The function is called once for each batch and pass over the matrix, one of which looks at the numbers' precision;
    answers of `KEPT` bytes together are kept.

    Args:
        function: maps int64 ids (B, L) to logits or log-probabilities, (B, L, M) or (B, M); or an `Adapter`.
        data: batches of ids (B, L), which are kept.
        vocab_size: M; an adapter has its own.

    Raises:
        ConfigurationError: without data or vocabulary size.
        SourceError: for batches that are not ids (B, L).
        MatrixError: for an answer of another shape.
    """
    name = getattr(function, "__name__", type(function).__name__)
    answer = function
    if isinstance(function, Adapter):
        answer, vocab_size = function.logits, function.vocab_size
    if vocab_size is None or vocab_size < 1:
        raise ConfigurationError("a function needs vocab_size=M, the number of its logits, at least 1")
    if isinstance(data, str) or not isinstance(data, Iterable):
        raise ConfigurationError("a function needs data=batches, an iterable of token ids of shape (B, L)")
    answers = _Answers(answer, [_ids(batch, number) for number, batch in enumerate(data)], vocab_size)
    return MatrixSource(answers, kind="logits", path=name)


class _Answers:
    """The answers to all batches as one matrix; all are kept where they are few, else the last one computed."""

    def __init__(self, function: Callable[[Any], Any], batches: list[NDArray[np.int64]], vocab_size: int) -> None:
        if not batches:
            raise SourceError("data is empty: a function needs at least one batch of token ids")
        self._function, self._batches, self._vocab_size = function, batches, vocab_size
        self.native_dtypes: set[str] = set()
        """The types that answers came in."""
        first = self._ask(0)
        self._kept = {0: first}
        last_only = len(first) == len(batches[0]) and batches[0].shape[1] > 1
        sizes = [len(batch) if last_only else batch.size for batch in batches]
        self._ends = list(accumulate(sizes))
        self.shape = (self._ends[-1], vocab_size)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        pieces, begin = [], 0
        for number, end in enumerate(self._ends):
            if begin < stop and end > start:
                pieces.append(self._answer(number, end - begin)[max(0, start - begin) : stop - begin])
            begin = end
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _answer(self, number: int, rows: int) -> NDArray[Any]:
        if number not in self._kept:
            if self.shape[0] * self.shape[1] * np.dtype(np.float64).itemsize > KEPT:
                self._kept.clear()
            self._kept[number] = self._ask(number)
        answer = self._kept[number]
        if len(answer) != rows:
            raise MatrixError(f"batch {number} of the data has {len(answer)} rows of logits instead of {rows}")
        return answer

    def _ask(self, number: int) -> NDArray[Any]:
        batch = self._batches[number]
        answer = self._function(batch)
        self.native_dtypes.add(native_dtype(answer))
        logits = as_array(answer)
        if logits.shape not in ((*batch.shape, self._vocab_size), (len(batch), self._vocab_size)):
            raise MatrixError(
                f"for ids of shape {batch.shape} the function must return logits of shape "
                f"{(*batch.shape, self._vocab_size)} or {(len(batch), self._vocab_size)}, not {logits.shape}"
            )
        return logits.reshape(-1, self._vocab_size)


def _ids(batch: Any, number: int) -> NDArray[np.int64]:
    ids = np.asarray(batch.detach().cpu() if hasattr(batch, "detach") else batch)
    if ids.ndim != 2 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise SourceError(
            f"batch {number} of the data must be whole token ids of shape (B, L), not {ids.dtype} of shape {ids.shape}"
        )
    return ids.astype(np.int64)
