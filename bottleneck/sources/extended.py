"""The extended logit matrix: a model's logits after each history and each future (Golowich, Liu and Shetty 2026)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigurationError, MatrixError, SourceError
from ..full_precision import full_precision
from ..heads import Head, RankBound
from ..models import RunOnText
from ..models.huggingface.on_text import HuggingFaceOnText
from ..options import Opening, takes
from ..spectrum import Inspection, Precision, precision
from ..spectrum.blocks import as_array, native_dtype
from .base import Block, Source, spanning
from .function import KIND as FUNCTION
from .model import ModelSource

Ids = NDArray[np.int64]
AT_ONCE = 256
"""Histories in one forward pass."""
HISTORY_LENGTH, FUTURE_LENGTH = 32, 8
"""Tokens of a history and a future that are drawn from a text; fewer if the model reads less."""


class _Model(ABC):
    """A model that predicts the next token after histories and a future."""

    vocab: int
    precision: Precision | None
    """Precision of the answers; ``None`` if only they show it."""
    reads: int = 1 << 30
    """Largest number of tokens that the model reads."""
    dtypes: Collection[str] = ()
    """Types of the answers so far, if they show the precision."""

    @abstractmethod
    def after(self, block: int, histories: Ids, future: Ids) -> NDArray[Any]:
        """Return log P or logits, (n, M), of the next token after n histories of one length, each with the future."""


@final
class _Run(_Model):
    """A run: the state after each block of histories is computed once."""

    def __init__(self, model: RunOnText) -> None:
        self._model, self._device = model._model, model._device
        self.vocab, self.precision = model.head.vocab_size, precision(model.dtype)
        self._states: dict[int, tuple[Tensor, Any]] = {}

    def after(self, block: int, histories: Ids, future: Ids) -> NDArray[Any]:
        if block not in self._states:
            self._states[block] = self._read(torch.from_numpy(histories.T.copy()), None)
        hidden, state = self._states[block]
        if len(future):
            hidden, _ = self._read(torch.from_numpy(np.tile(future[:, None], len(histories))), state)
        with full_precision():
            return as_array(self._model.head.log_prob(hidden))

    def _read(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        with full_precision():
            hidden, after = self._model.hidden(ids.to(self._device), state)
        return hidden[-1], after


@final
class _HuggingFace(_Model):
    def __init__(self, model: HuggingFaceOnText, head: Head) -> None:
        self._model, self._head = model, head
        self.reads = model._windows.context_length
        self.vocab, self.precision = head.vocab_size, precision(model.dtype)

    def after(self, block: int, histories: Ids, future: Ids) -> NDArray[Any]:
        ids = torch.from_numpy(_joined(histories, future))
        if ids.shape[1] > self.reads:
            raise SourceError(
                f"a history and a future have {ids.shape[1]:,} tokens together, more than the {self.reads:,} that the "
                "model reads: give shorter ones"
            )
        hidden = self._model._encode(ids, torch.ones_like(ids))[:, -1]
        with full_precision():
            return as_array(self._head.log_prob(hidden.to(self._head.weight)))


@final
class _Function(_Model):
    def __init__(self, function: Callable[[Ids], Any], vocab: int) -> None:
        self._function, self.vocab, self.precision = function, vocab, None
        self.dtypes: set[str] = set()

    def after(self, block: int, histories: Ids, future: Ids) -> NDArray[Any]:
        answer = self._function(_joined(histories, future))
        self.dtypes.add(native_dtype(answer))
        logits = np.array(as_array(answer))  # the function may reuse its memory
        logits = logits if logits.dtype.kind == "f" else logits.astype(np.float64)
        logits = logits[:, -1] if logits.ndim == 3 else logits
        if logits.shape != (len(histories), self.vocab):
            raise MatrixError(f"the function must return logits of shape (B, {self.vocab}), not {logits.shape}")
        return logits


@final
class ExtendedSource(Source):
    """The transpose of the extended logit matrix: a row for each (future, next token), a column for each history.

    Its singular values equal those of the paper's histories × (future, token) matrix, but its rows can be streamed.
    Each entry is the logit of the token minus the mean over all tokens after that history and future.

    Args:
        model: the model that predicts.
        histories: token ids of each history, at least one.
        futures: token ids of each future, which may be empty.
        description: description of the source.
        bound: largest rank of one future's block, if it is known.
        identity: hashes of the model.
    """

    embedding_size = None
    targets = None

    def __init__(
        self,
        model: _Model,
        histories: Sequence[Ids],
        futures: Sequence[Ids],
        *,
        description: Mapping[str, Any],
        bound: int | None,
        identity: Mapping[str, str],
    ) -> None:
        self._model, self.histories, self.futures = model, list(histories), list(futures)
        self.vocab = model.vocab
        self.shape = (len(self.futures) * self.vocab, len(self.histories))
        lengths = np.array([len(history) for history in self.histories])
        self._blocks = [
            places
            for length in np.unique(lengths)
            for places in np.array_split(
                np.flatnonzero(lengths == length), -(-int((lengths == length).sum()) // AT_ONCE)
            )
        ]
        self._last: tuple[int, NDArray[Any]] | None = None
        self.dtype = "float32" if self._future(0).dtype.itemsize <= 4 else "float64"
        self.description = {**description, "kind": "extended", "histories": len(self.histories)}
        self.description |= {"futures": len(self.futures), "tokens": self.vocab}
        most = None if bound is None else min(len(self.histories), len(self.futures) * bound)
        why = "each future adds a block of the rank that the output layer's bound allows"
        self.bound = RankBound(most, most, why if most else "the output layer bounds the rank of no future's block")
        digest = hashlib.sha256(repr([part.tolist() for part in (*self.histories, *self.futures)]).encode())
        self._known = {**identity, "extended": digest.hexdigest()}

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the model, the histories and the futures; of a function those of its logits."""
        if self._model.precision is not None:
            return self._known
        digest = hashlib.sha256()
        for logits in self._logits():
            digest.update(np.ascontiguousarray(logits).data.cast("B"))
        return {**self._known, "logits": digest.hexdigest()}

    @cached_property
    def precision(self) -> Precision:
        """The precision of the output layer, or of a function's logits, inferred from them."""
        if self._model.precision is not None:
            return self._model.precision
        return replace(self._inspection.precision(), size=self._inspection.root_mean_square())

    def caution(self, eps: float) -> str:
        """Return a sentence that names the contexts or tokens that hold most of the energy of a function's logits."""
        return "" if self._model.precision is not None else self._inspection.caution(eps)

    def replaced(self) -> str:
        """Return what the inspection says of a function's logits."""
        return "" if self._model.precision is not None else self._inspection.replaced()

    @cached_property
    def _inspection(self) -> Inspection:
        inspection = Inspection(self.entries_shape[0], language=True)
        for logits in self._logits():
            inspection.watch(logits)
        if inspection.masked.any():
            raise MatrixError(
                f"token {int(inspection.masked.argmax())} is masked after every history and future: use a model that "
                "masks no token"
            )
        inspection.note(self._model.dtypes)
        return inspection

    def _logits(self) -> Iterator[NDArray[Any]]:
        """Yield the model's answers, (n, M)."""
        for future in range(len(self.futures)):
            yield from self._answers(future)

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield rows of ascending ranges; memory holds the rows of one future."""
        for rows in self.ranges() if ranges is None else ranges:
            yield Block(rows.start, spanning(rows, self.vocab, self._future))

    @property
    def entries_shape(self) -> tuple[int, int]:
        """(futures × histories, M): a distribution of the next token after each history and future."""
        return len(self.futures) * len(self.histories), self.vocab

    def entries(self) -> Iterator[NDArray[Any]]:
        """Yield the logits of each future, (histories, M)."""
        return (self._future(number).T for number in range(len(self.futures)))

    def rows_at_once(self) -> int:
        """Return the number of rows in one block, which lies within one future."""
        return min(self.vocab, super().rows_at_once())

    def future(self, number: int) -> NDArray[Any]:
        """Return one future's logits minus their means, (M, histories)."""
        return self._future(number).copy()

    def _future(self, number: int) -> NDArray[Any]:
        if self._last is None or self._last[0] != number:
            columns = list(self._answers(number))
            whole = np.empty((self.vocab, len(self.histories)), dtype=columns[0].dtype)
            for places, logits in zip(self._blocks, columns, strict=True):
                whole[:, places] = (logits - logits.mean(1, keepdims=True, dtype=np.float64)).T
            self._last = number, whole
        return self._last[1]

    def _answers(self, future: int) -> Iterator[NDArray[Any]]:
        """Yield the model's logits after one future, (n, M) for each block of histories."""
        for block, places in enumerate(self._blocks):
            histories = np.stack([self.histories[place] for place in places])
            logits = self._model.after(block, histories, self.futures[future])
            if not np.isfinite(logits).all():
                raise MatrixError(
                    f"the logits after future {future} are not all finite: use a model that masks no token"
                )
            yield logits


@takes(Opening)
def extended_logits(
    model: Any,
    histories: int | Sequence[Any],
    futures: int | Sequence[Any],
    *,
    history_length: int | None = None,
    future_length: int | None = None,
    seed: int = 0,
    **options: Unpack[Opening],
) -> ExtendedSource:
    r"""Return the extended logit matrix of a model, whose entries are

    .. math:: L_{h, (f, z)} = \log P(z | h, f) - \frac1M \sum_{z'} \log P(z' | h, f)

    for histories h, futures f and next tokens z (Golowich, Liu and Shetty, ICLR 2026, arXiv 2510.24966). Its rank is
    low if the distribution of whole continuations depends on few features of the history.

    Args:
        model: path of a run or Hugging Face model, an opened source of one, or a function from ids (B, L) to logits
            (B, L, M) or (B, M).
        histories: sequences of token ids, or the number to draw from the model's text.
        futures: as ``histories``; a future may be empty.
        history_length: tokens of a drawn history; by default 32, at most three quarters of what the model reads.
        future_length: tokens of a drawn future; by default 8, at most a quarter of what the model reads.
        seed: seed of the draw.
        options: how the model is opened, see `Opening`; ``vocab_size=M`` for a function.

    Returns:
        A source with a row for each (future, next token) and a column for each history; see `ExtendedSource`.

    Raises:
        SourceError: when ``model`` is no model.
        ConfigurationError: for ids outside the vocabulary, an empty history, or too few histories, futures or tokens.

    Example:
        >>> bigram = np.log(np.random.default_rng(0).dirichlet(np.ones(5), 5))
        >>> matrix = extended_logits(lambda ids: bigram[ids], [[0], [1], [2]], [[], [3]], vocab_size=5)
        >>> matrix.shape, bool(np.ptp(matrix.future(1), axis=1).any())  # a bigram has forgotten the history
        ((10, 3), False)
    """
    from .kinds import find, open_source  # imported late: its registry imports this folder's modules

    known: Mapping[str, str] = {}
    vocab_size = options.get("vocab_size")
    if find(str(model) if isinstance(model, Path) else model) is not FUNCTION:
        model = open_source(model, **options)
    elif others := sorted(options.keys() - {"vocab_size"}):
        raise ConfigurationError(f"{others[0]} does not apply to a function, which takes vocab_size")
    adapter: _Model
    on_text = model.model if isinstance(model, ModelSource) else None
    if isinstance(model, ModelSource) and isinstance(on_text, RunOnText | HuggingFaceOnText):
        if isinstance(on_text, RunOnText):
            if on_text.answers:
                raise SourceError(
                    f"{model.description['path']} answers the lines before a line, and the extended logit matrix needs "
                    "a model that continues any tokens: give one that reads a stream"
                )
            adapter = _Run(on_text)
        else:
            adapter = _HuggingFace(on_text, model.head)
        description, bound, known = dict(model.description), model.bound.centered, model.identity
        text = on_text.text.ids if on_text.text is not None else np.zeros(0, dtype=np.int64)
    elif callable(model) and vocab_size is not None and vocab_size >= 1:
        adapter, bound, text = _Function(model, vocab_size), None, np.zeros(0, dtype=np.int64)
        name = getattr(model, "__name__", type(model).__name__)
        description = {"path": name, "head": None, "corpus": None, "split": None}
    else:
        raise SourceError(
            "the extended logit matrix needs a run, a Hugging Face model, or a function with vocab_size=M, not a "
            f"{type(model).__name__}: a matrix holds no log-probabilities of longer futures; give a model"
        )
    generator = np.random.default_rng(seed)
    if history_length is None:
        history_length = min(HISTORY_LENGTH, 3 * adapter.reads // 4)
    if future_length is None:
        future_length = min(FUTURE_LENGTH, adapter.reads // 4)
    parts = [
        _sequences(given, length, text, generator, adapter.vocab, least, what)
        for given, length, least, what in (
            (histories, history_length, 1, "histories"),
            (futures, future_length, 0, "futures"),
        )
    ]
    return ExtendedSource(adapter, *parts, description=description, bound=bound, identity=known)


def _joined(histories: Ids, future: Ids) -> Ids:
    return np.concatenate([histories, np.tile(future, (len(histories), 1))], 1)


def _sequences(
    given: int | Sequence[Any],
    length: int,
    text: Ids,
    generator: np.random.Generator,
    vocab: int,
    least: int,
    what: str,
) -> list[Ids]:
    if isinstance(given, int | np.integer):
        if given < 1 or length < 1 or len(text) < length:
            raise ConfigurationError(
                f"{given} {what} of {length} tokens cannot be drawn from a text of {len(text):,} tokens: give ids, or "
                "other numbers"
            )
        drawn: dict[bytes, Ids] = {}
        for start in generator.permutation(len(text) - length + 1):
            ids = text[start : start + length].astype(np.int64)
            drawn.setdefault(ids.tobytes(), ids)
            if len(drawn) == given:
                return list(drawn.values())
        raise ConfigurationError(
            f"the text of {len(text):,} tokens has only {len(drawn):,} different {what} of {length} tokens, and "
            f"{given:,} are asked for: give a longer text or other numbers"
        )
    sequences = [np.asarray(ids, dtype=np.int64).reshape(-1) for ids in given]
    if not sequences or min(map(len, sequences)) < least:
        raise ConfigurationError(f"give at least one of the {what}, each of at least {least} tokens")
    if any(((ids < 0) | (ids >= vocab)).any() for ids in sequences):
        raise ConfigurationError(f"the {what} hold ids outside 0 to {vocab - 1}: give those of the model's vocabulary")
    return sequences
