"""The extended logit matrix: a model's logits after each history and each future (Golowich, Liu and Shetty 2026)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack, final

import numpy as np
from numpy.typing import NDArray

from ..core.options import Opening, takes
from ..errors import ConfigurationError, MatrixError, SourceError
from ..heads import RankBound
from ..language_models.on_text import Ids, joined
from ..language_models.source import UNKNOWN, Block, Source, spanning
from ..spectrum import Inspection, Precision
from ..spectrum.blocks import as_array, native_dtype
from .function import KIND as FUNCTION

AT_ONCE = 256
"""Histories in one forward pass."""
HISTORY_LENGTH, FUTURE_LENGTH = 32, 8
"""Tokens of a history and a future that are drawn from a text; fewer if the model reads less."""


class _Function:
    """A function as a model that predicts; its answers alone show their precision, and are of `dtypes`."""

    precision, bound, text = None, UNKNOWN, None
    identity: Mapping[str, str] = MappingProxyType({})
    longest_input = 1 << 30

    def __init__(self, function: Callable[[Ids], Any], vocab: int) -> None:
        self._function, self.shape, self.dtypes = function, (0, vocab), set[str]()
        name = getattr(function, "__name__", type(function).__name__)
        self.description = {"path": name, "head": None, "corpus": None, "split": None}

    def next_log_probs(self, histories: Ids) -> Callable[[Ids], NDArray[Any]]:
        """Return a function from a future to the logits of the token after each history with it, (n, M)."""

        def after(future: Ids) -> NDArray[Any]:
            answer = self._function(joined(histories, future))
            self.dtypes.add(native_dtype(answer))
            logits = np.array(as_array(answer))  # the function may reuse its memory
            logits = logits if logits.dtype.kind == "f" else logits.astype(np.float64)
            logits = logits[:, -1] if logits.ndim == 3 else logits
            if logits.shape != (len(histories), self.shape[1]):
                raise MatrixError(f"the function must return logits of shape (B, {self.shape[1]}), not {logits.shape}")
            return logits

        return after


@final
class ExtendedSource(Source):
    """The transpose of the extended logit matrix: a row for each (future, next token), a column for each history.

    Its singular values equal those of the paper's histories × (future, token) matrix, but its rows can be streamed.
    Each entry is the logit of the token minus the mean over all tokens after that history and future.

    Args:
        model: the model that predicts.
        histories: token ids of each history, at least one.
        futures: token ids of each future, which may be empty.
    """

    embedding_size = None
    targets = None

    def __init__(self, model: Any, histories: Sequence[Ids], futures: Sequence[Ids]) -> None:
        self._model, self.histories, self.futures = model, list(histories), list(futures)
        self.vocab = model.shape[1]
        self.shape = (len(self.futures) * self.vocab, len(self.histories))
        lengths = np.array([len(history) for history in self.histories])
        self._blocks = [
            places
            for length in np.unique(lengths)
            for places in np.array_split(
                np.flatnonzero(lengths == length), -(-int((lengths == length).sum()) // AT_ONCE)
            )
        ]
        self._after = [model.next_log_probs(np.stack([self.histories[n] for n in places])) for places in self._blocks]
        self._last: tuple[int, NDArray[Any]] | None = None
        self.dtype = "float32" if self._future(0).dtype.itemsize <= 4 else "float64"
        self.description = {**model.description, "kind": "extended", "histories": len(self.histories)}
        self.description |= {"futures": len(self.futures), "tokens": self.vocab}
        each = model.bound.centered
        most = None if each is None else min(len(self.histories), len(self.futures) * each)
        why = "each future adds a block of the rank that the output layer's bound allows"
        self.bound = RankBound(most, most, why if most else "the output layer bounds the rank of no future's block")
        digest = hashlib.sha256(repr([part.tolist() for part in (*self.histories, *self.futures)]).encode())
        self._hashes = {**model.identity, "extended": digest.hexdigest()}

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the model, the histories and the futures; of a function those of its logits."""
        if self._model.precision is not None:
            return self._hashes
        digest = hashlib.sha256()
        for logits in self._logits():
            digest.update(np.ascontiguousarray(logits).data.cast("B"))
        return {**self._hashes, "logits": digest.hexdigest()}

    @cached_property
    def precision(self) -> Precision:
        """The precision of the output layer, or of a function's logits, inferred from them."""
        if self._model.precision is not None:
            return self._model.precision
        return replace(self._inspection.precision(), size=self._inspection.root_mean_square())

    def rank_warning(self, eps: float) -> str:
        """Return a sentence that names the contexts or tokens that hold most of the energy of a function's logits."""
        return "" if self._model.precision is not None else self._inspection.rank_warning(eps)

    def entry_warning(self) -> str:
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
        for after in self._after:
            logits = after(self.futures[future])
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
    opened = _opened(model, options)
    text = np.zeros(0, dtype=np.int64) if opened.text is None else opened.text.ids
    draw = partial(_sequences, text=text, generator=np.random.default_rng(seed), vocab=opened.shape[1])
    if history_length is None:
        history_length = min(HISTORY_LENGTH, 3 * opened.longest_input // 4)
    if future_length is None:
        future_length = min(FUTURE_LENGTH, opened.longest_input // 4)
    return ExtendedSource(
        opened,
        draw("histories", histories, history_length, least=1),
        draw("futures", futures, future_length, least=0),
    )


def _opened(model: Any, options: Opening) -> Any:
    """Return a model that has ``next_log_probs``."""
    from .kinds import find, open_source  # imported late: its registry imports this folder's modules

    vocab_size = options.get("vocab_size")
    if find(str(model) if isinstance(model, Path) else model) is not FUNCTION:
        opened = open_source(model, **options)
        if hasattr(opened, "next_log_probs"):
            return opened
        raise SourceError(
            "the extended logit matrix needs a run, a Hugging Face model, or a function with vocab_size=M, not a "
            f"{type(opened).__name__}: a matrix holds no log-probabilities of longer futures; give a model"
        )
    if others := sorted(options.keys() - {"vocab_size"}):
        raise ConfigurationError(f"{others[0]} does not apply to a function, which takes vocab_size")
    if not callable(model) or vocab_size is None or vocab_size < 1:
        raise ConfigurationError("a function's extended logit matrix needs vocab_size=M, at least 1")
    return _Function(model, vocab_size)


def _sequences(
    what: str,
    given: int | Sequence[Any],
    length: int,
    *,
    least: int,
    text: Ids,
    generator: np.random.Generator,
    vocab: int,
) -> list[Ids]:
    """Return the given sequences of at least ``least`` tokens, or draw that many different ones from a text."""
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
