"""Any function from token ids to logits, measured as the matrix of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..core.checks import check_positive
from ..core.full_precision import evaluating, full_precision
from ..corpora.batches import Ids, batches_of
from ..errors import ConfigurationError, MatrixError, SourceError
from ..language_models.checked_product import WITHOUT_LOGITS
from ..language_models.source import spanning
from ..spectrum.blocks import as_array, is_array, native_dtype
from .matrix import MatrixSource

KEPT = 1 << 28
"""Bytes of float64 outputs that are kept from one pass to the next."""
UNSEEN = 0.01
"""By how much of their standard deviation logits may change with a later token that they are not to see."""


@runtime_checkable
class Adapter(Protocol):
    """The interface that a model of any framework needs to be measured.

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
        """Map ids (B, L) to logits (B, L, M), or (B, M) or (B, 1, M) of the last position, for NumPy or torch."""


def from_function(function: Any, *, data: Any = None, vocab_size: int | None = None) -> MatrixSource:
    """Return the log-probabilities of a function's logits, with one row for each position of its output.

    Each pass over the matrix calls the function once per batch; one pass infers the precision. Outputs of at most
    `KEPT` bytes are kept between passes. Each position predicts the token after it, unless its logits change with that
    token, as those of a masked language model do. A torch module runs on its own device, in evaluation mode and without
    gradients; afterwards its modes are what they were, and one that writes to its parameters or buffers is refused.

    Args:
        function: a function from int64 ids (B, L) to logits or log-probabilities, (B, L, M), or (B, M) or (B, 1, M) of
            the last position; an `Adapter`; or an ``nn.Module`` whose output is such logits or has them as ``logits``.
            The ids are a NumPy array; a function that raises `TypeError` or `AttributeError` for it, as code for torch
            does, is given a torch tensor on the CPU.
        data: batches of ids (B, L), each row a text of its own, such as a ``DataLoader`` yields, or another form that
            `batches_of` takes; they are kept. Consecutive texts of one length are read together, without their padding.
        vocab_size: M; by default that of the adapter, or of the function's first output.

    Raises:
        ConfigurationError: without data.
        SourceError: for data that are not ids.
        MatrixError: for an output of another shape.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, Adapter) and not isinstance(function, nn.Module):
        vocab_size = function.vocab_size
    check_positive(vocab_size=vocab_size)
    if data is None or isinstance(data, str | Path):
        raise ConfigurationError("a function needs data=batches, an iterable of token ids of shape (B, L)")
    batches = [ids for batch in batches_of(data) for ids in _alike(batch)]
    answers = _Answers(LogitsFunction(function), batches, vocab_size)
    return MatrixSource(answers, kind="logits", path=name)


def _logits_of(module: nn.Module, ids: NDArray[np.int64]) -> Any:
    """Return a torch module's output for ids."""
    weight = next(chain(module.parameters(), module.buffers()), torch.empty(0))
    with evaluating(module), full_precision():
        return module(torch.from_numpy(ids).to(weight.device))


def _only_logits(output: Any) -> Any:
    """Return the logits of an output that may hold more; `SourceError` for an output without logits."""
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    first = logits[0] if isinstance(logits, tuple) and logits else logits
    if (isinstance(first, list | tuple) and first) or is_array(first) or hasattr(first, "__array__"):
        return first
    keys = f" with {', '.join(map(repr, output))}" if isinstance(output, Mapping) and output else ""
    returned = "None" if output is None else f"a {type(output).__name__}{keys}"
    raise SourceError(f"the function or module returns {returned}, without logits: {WITHOUT_LOGITS}")


class LogitsFunction:
    """A function, torch module or `Adapter` as a function from ids (B, L) to an array of its logits."""

    def __init__(self, function: Any) -> None:
        self._function = function
        if isinstance(function, nn.Module):
            self._function = partial(_logits_of, function)
        elif isinstance(function, Adapter):
            self._function = function.logits
        self._ids_for: Callable[[NDArray[np.int64]], Any] = np.asarray
        self.native_dtypes: set[str] = set()
        """The types of the outputs."""

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return the logits for ids, which are given as a torch tensor once the function has refused an array."""
        try:
            output = self._function(self._ids_for(ids))
        except (TypeError, AttributeError):
            if self._ids_for is torch.from_numpy:
                raise
            self._ids_for = torch.from_numpy
            output = self._function(torch.from_numpy(ids))
        logits = _only_logits(output)
        self.native_dtypes.add(native_dtype(logits))
        return as_array(logits)


class _Answers:
    """The outputs for all batches as one matrix; all are kept if they are small, otherwise the last one."""

    def __init__(self, function: LogitsFunction, batches: list[Ids], vocab_size: int | None) -> None:
        if not batches:
            raise SourceError("data is empty: a function needs at least one batch of token ids")
        self._function, self._vocab_size = function, vocab_size
        self._batches, self._are_targets = [ids for ids, _ in batches], [predicted for _, predicted in batches]
        self.native_dtypes = function.native_dtypes
        number = next((n for n, (ids, _) in enumerate(batches) if ids.shape[1] > 1), 0)  # others do not tell the form
        batch = self._batches[number]
        first = self._ask(batch, number)
        self._vocab_size = first.shape[-1]
        self._kept = {number: first}
        self._last_only = len(first) == len(batch) and batch.shape[1] > 1
        self._starts = [0, *accumulate(len(ids) if self._last_only else ids.size for ids in self._batches)]
        self.shape = (self._starts[-1], self._vocab_size)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return spanning(range(*rows.indices(self.shape[0])), self._starts, self._answer)

    def _answer(self, number: int) -> NDArray[Any]:
        rows = self._starts[number + 1] - self._starts[number]
        if number not in self._kept:
            if self.shape[0] * self.shape[1] * np.dtype(np.float64).itemsize > KEPT:
                self._kept.clear()
            self._kept[number] = self._ask(self._batches[number], number)
        answer = self._kept[number]
        if len(answer) != rows:
            raise MatrixError(f"batch {number} of the data has {len(answer)} rows of logits instead of {rows}")
        return answer

    @cached_property
    def targets(self) -> NDArray[np.int64] | None:
        """(T,), the token after each position, −1 where none is predicted; ``None`` if the logits have seen it."""
        if self._last_only or not self._is_causal():
            return None
        pairs = zip(self._batches, self._are_targets, strict=True)
        known = (np.where(predicted & (ids < self.shape[1]), ids, -1) for ids, predicted in pairs)
        return np.concatenate([np.pad(ids[:, 1:], ((0, 0), (0, 1)), constant_values=-1).ravel() for ids in known])

    def _is_causal(self) -> bool:
        """Return whether logits stay as they are when the last token of the smallest batch is another one."""
        number = min(range(len(self._batches)), key=lambda n: (self._batches[n].shape[1] < 2, self._batches[n].size))
        ids, known = self._batches[number], np.unique(np.concatenate([each.ravel() for each in self._batches]))
        if ids.shape[1] < 2 or len(known) < 2:
            return False
        other = ids.copy()
        other[:, -1] = known[(np.searchsorted(known, ids[:, -1]) + 1) % len(known)]  # an id that the function reads
        before, after = (
            each.reshape(*ids.shape, -1)[:, :-1] for each in (self._answer(number), self._ask(other, number))
        )
        moved = np.subtract(before, after, out=np.zeros(before.shape), where=before != after)
        return bool((np.abs(moved) <= UNSEEN * before[np.isfinite(before)].std()).all())

    def _ask(self, batch: NDArray[np.int64], number: int) -> NDArray[Any]:
        try:
            logits = self._function(batch)
        except IndexError as error:
            raise SourceError(
                f"the function failed at batch {number} of the data, with ids from {batch.min()} to {batch.max()}: "
                f"{error}; give ids that it has embeddings for, in rows no longer than it reads"
            ) from error
        if logits.ndim == 3 and logits.shape[:2] == (len(batch), 1):
            logits = logits[:, 0]  # of the last position, as modules return them for generation
        M = self._vocab_size or (logits.shape[-1] if logits.ndim in (2, 3) else 0) or "M"
        if logits.shape not in ((*batch.shape, M), (len(batch), M)):
            raise MatrixError(
                f"for ids of shape {batch.shape} the function must return logits of shape "
                f"{(*batch.shape, M)} or {(len(batch), M)}, not {logits.shape}"
            )
        return np.array(logits.reshape(-1, logits.shape[-1]))  # the function may reuse its memory


def _alike(texts: list[Any]) -> Iterator[Ids]:
    """Yield texts in their order, consecutive ones of one length together: ids and which are targets, (B, L) each."""
    for length, group in groupby(texts, key=lambda text: 0 if isinstance(text, str) else len(text[0])):
        if not length:
            raise SourceError("a function reads token ids, not texts: encode them, tokenizer(texts)['input_ids']")
        ids, are_targets = zip(*group, strict=True)
        yield np.stack(ids), np.stack(are_targets)
