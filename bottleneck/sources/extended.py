"""The extended logit matrix: a model's logits after each history and each future (Golowich, Liu and Shetty 2026)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, Unpack, final

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_positive, check_seed, typed
from ..core.options import Opening, takes
from ..corpora.batches import texts_in, whole_numbers
from ..errors import ConfigurationError, MatrixError, SourceError
from ..heads import RankBound
from ..language_models import ModelOnText
from ..language_models.source import UNKNOWN, Block, Source, spanning
from ..language_models.states import GivenStates
from ..language_models.text import Ids
from ..spectrum import Inspection, Precision
from .function import Adapter, LogitsFunction

AT_ONCE = 256
"""Histories in one forward pass."""
HISTORY_LENGTH, FUTURE_LENGTH = 32, 8
"""Tokens of a history and a future that are drawn from a text; fewer if the model reads less."""


class _Function:
    """A function from ids to logits as a model that continues histories; only its answers show their precision."""

    precision, identity, bound, longest_input = None, dict[str, str](), UNKNOWN, 1 << 30

    def __init__(self, function: Any, vocab: int, data: Any) -> None:
        self.function, self.shape = LogitsFunction(function), (0, vocab)
        texts: Any = [] if data is None else texts_in(data)
        if any(isinstance(text, str) for text in texts):
            raise ConfigurationError("a function reads token ids, not texts: give data as ids")
        self.ids = np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in texts)])
        name = getattr(function, "__name__", type(function).__name__)
        self.description = {"path": name, "head": None, "corpus": None, "split": None}

    def next_log_probs(self, histories: Ids) -> Callable[[Ids], NDArray[Any]]:
        """See `ModelOnText.next_log_probs`; the function returns logits."""

        def after(future: Ids) -> NDArray[Any]:
            logits = np.array(
                self.function(np.concatenate([histories, np.tile(future, (len(histories), 1))], 1))
            )  # the function may reuse its memory
            logits = logits[:, -1] if logits.ndim == 3 else logits
            if logits.shape != (len(histories), self.shape[1]):
                raise MatrixError(f"the function must return logits of shape (B, {self.shape[1]}), not {logits.shape}")
            return logits

        return after


Model = ModelOnText | _Function
"""What can predict the next token after a history and a future."""


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

    def __init__(self, model: Model, histories: Sequence[Ids], futures: Sequence[Ids]) -> None:
        self._model, self.histories, self.futures = model, list(histories), list(futures)
        self.vocab = model.shape[1]
        self.shape = (len(self.futures) * self.vocab, len(self.histories))
        by_length: dict[int, list[int]] = {}
        for number, history in enumerate(self.histories):
            by_length.setdefault(len(history), []).append(number)
        self._blocks = [
            np.array(numbers[start : start + AT_ONCE])
            for _, numbers in sorted(by_length.items())
            for start in range(0, len(numbers), AT_ONCE)
        ]
        self._after = [model.next_log_probs(np.stack([self.histories[n] for n in places])) for places in self._blocks]
        self._last: tuple[int, NDArray[Any]] | None = None
        self.dtype = "float32" if self._future(0).dtype.itemsize <= 4 else "float64"
        self.description = {**model.description, "kind": "extended", "histories": len(self.histories)}
        self.description |= {"futures": len(self.futures), "tokens": self.vocab}
        bound = model.bound.centered
        most = None if bound is None else min(len(self.histories), len(self.futures) * bound)
        why = "each future adds a block of the rank that the output layer's bound allows"
        self.bound = RankBound(most, most, why if most else "the output layer does not bound the rank of a future")

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the model, the histories and the futures; of a function those of its logits."""
        sequences = repr([part.tolist() for part in (*self.histories, *self.futures)])
        hashes = {**self._model.identity, "extended": hashlib.sha256(sequences.encode()).hexdigest()}
        return hashes if self._inspected is None else {**hashes, "logits": self._inspected[1]}

    @cached_property
    def precision(self) -> Precision:
        """The precision of the output layer, or of a function's logits, inferred from them."""
        if self._inspected is None:
            assert self._model.precision is not None
            return self._model.precision
        inspection = self._inspected[0]
        return replace(inspection.precision, size=inspection.root_mean_square())

    def rank_warning(self, eps: float) -> str:
        """Return a sentence that names the contexts or tokens that hold most of the energy of a function's logits."""
        return "" if self._inspected is None else self._inspected[0].rank_warning(eps)

    def entry_warning(self) -> str:
        """Return what the inspection says of a function's logits."""
        return "" if self._inspected is None else self._inspected[0].replaced()

    @cached_property
    def _inspected(self) -> tuple[Inspection, str] | None:
        """An inspection of a function's logits, and their hash; ``None`` for a model."""
        if not isinstance(self._model, _Function):
            return None
        inspection, digest = Inspection(language=True), hashlib.sha256()
        for future in self.futures:
            for logits in self._answers(future):
                inspection.watch(logits)
                digest.update(np.ascontiguousarray(logits).data.cast("B"))
        if inspection.masked.any():
            raise MatrixError(
                f"token {int(inspection.masked.argmax())} is masked after every history and future: use a model that "
                "masks no token"
            )
        inspection.note(self._model.function.native_dtypes)
        return inspection, digest.hexdigest()

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield rows of ascending ranges; memory holds the rows of one future."""
        for rows in self.ranges() if ranges is None else ranges:
            yield Block(rows.start, spanning(rows, range(0, self.shape[0], self.vocab), self._future))

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

    def after(self, future: Ids) -> NDArray[Any]:
        """Return the logits after any future minus their means, (M, histories)."""
        columns = list(self._answers(future))
        whole = np.empty((self.vocab, len(self.histories)), dtype=columns[0].dtype)
        for places, logits in zip(self._blocks, columns, strict=True):
            whole[:, places] = (logits - logits.mean(1, keepdims=True, dtype=np.float64)).T
        return whole

    def _future(self, number: int) -> NDArray[Any]:
        if self._last is None or self._last[0] != number:
            self._last = number, self.after(self.futures[number])
        return self._last[1]

    def _answers(self, future: Ids) -> Iterator[NDArray[Any]]:
        """Yield the model's logits after one future, (n, M) for each block of histories."""
        for after in self._after:
            logits = after(future)
            if not np.isfinite(logits).all():
                raise MatrixError(
                    f"the logits after future {future.tolist()} are not all finite: use a model that masks no token"
                )
            yield logits


@takes(Opening)
@typed
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
            (B, L, M) or (B, M), a torch module or an `Adapter`, as for `from_function`.
        histories: sequences of token ids, or the number to draw from the model's text.
        futures: as ``histories``; a future may be empty.
        history_length: tokens of a drawn history; by default 32, at most three quarters of what the model reads.
        future_length: tokens of a drawn future; by default 8, at most a quarter of what the model reads.
        seed: seed of the draw.
        options: how the model is opened, see `Opening`; for a function ``vocab_size=M``, and ``data`` as token ids.

    Returns:
        A source with a row for each (future, next token) and a column for each history; see `ExtendedSource`.

    Raises:
        SourceError: when ``model`` is not a model.
        ConfigurationError: for ids outside the vocabulary, an empty history, or too few histories, futures or tokens.

    Example:
        >>> bigram = np.log(np.random.default_rng(0).dirichlet(np.ones(5), 5))
        >>> matrix = extended_logits(lambda ids: bigram[ids], [[0], [1], [2]], [[], [3]], vocab_size=5)
        >>> matrix.shape, bool(np.ptp(matrix.future(1), axis=1).any())  # a bigram has forgotten the history
        ((10, 3), False)
    """
    check_seed(seed)
    check_positive(vocab_size=options.get("vocab_size"))
    given = [part for part in (histories, futures) if isinstance(part, list | tuple)]
    longest = [max((len(ids) for ids in part if hasattr(ids, "__len__")), default=0) for part in given]
    predictor = _open(model, options, read=sum(longest) + 1 if len(given) == 2 else None)
    reads, generator = predictor.longest_input, np.random.default_rng(seed)
    lengths = (
        min(HISTORY_LENGTH, 3 * reads // 4) if history_length is None else history_length,
        min(FUTURE_LENGTH, reads // 4) if future_length is None else future_length,
    )
    parts = [
        _drawn(part, length, predictor.ids, generator, what)
        if isinstance(part, Integral)
        else _given(part, least, what)
        for part, length, least, what in zip(
            (histories, futures), lengths, (1, 0), ("histories", "futures"), strict=True
        )
    ]
    for what, sequences in zip(("histories", "futures"), parts, strict=True):
        if any(((ids < 0) | (ids >= predictor.shape[1])).any() for ids in sequences):
            last = predictor.shape[1] - 1
            raise ConfigurationError(f"the {what} hold ids outside 0 to {last}: give those of the model's vocabulary")
    return ExtendedSource(predictor, *parts)


def _open(model: Any, options: Opening, *, read: int | None) -> Model:
    """Return what predicts the next token, from a path, a source or a function.

    A model of transformers needs no text where it is to ``read`` given tokens, so many at most.
    """
    from .kinds import KINDS, find, open_source  # imported late: its registry imports this folder's modules

    kind = find(str(model) if isinstance(model, Path) else model)
    if kind in (KINDS["hugging-face"], KINDS["loaded model"]) and read and not options.keys() & {"data", "dataset"}:
        options["data"] = [[0] * read]
    if kind is KINDS["function"]:
        if others := sorted(options.keys() - {"vocab_size", "data"}):
            raise ConfigurationError(f"{others[0]} does not apply to a function, which takes vocab_size and data")
        vocab_size = options.get("vocab_size") or (model.vocab_size if isinstance(model, Adapter) else None)
        if vocab_size is None:
            raise ConfigurationError("a function's extended logit matrix needs vocab_size=M, at least 1")
        return _Function(model, vocab_size, options.get("data"))
    opened = open_source(model, **options)
    if not isinstance(opened, ModelOnText) or isinstance(opened.model, GivenStates):
        raise SourceError(
            "the extended logit matrix needs a run, a Hugging Face model, or a function with vocab_size=M, not a "
            f"{type(opened).__name__}: a matrix does not hold log-probabilities of longer futures; give a model"
        )
    return opened


def _drawn(count: Any, length: int, text: Ids, generator: np.random.Generator, what: str) -> list[Ids]:
    """Return different sequences of the text."""
    drawn: dict[bytes, Ids] = {}
    for start in generator.permutation(max(0, len(text) - length + 1)) if min(count, length) > 0 else ():
        ids = text[start : start + length].astype(np.int64)
        drawn.setdefault(ids.tobytes(), ids)
        if len(drawn) == count:
            return list(drawn.values())
    raise ConfigurationError(
        f"{count:,} different {what} of {length} tokens cannot be drawn from a text of {len(text):,} tokens: give a "
        "longer text, other numbers, or ids"
    )


def _given(sequences: Any, least: int, what: str) -> list[Ids]:
    """Return given sequences of ids as arrays."""
    if not isinstance(sequences, Iterable) or isinstance(sequences, str):
        raise ConfigurationError(f"the {what} must be sequences of token ids, or a number of them")
    parts: list[Ids] = [whole_numbers(ids, f"the {what}").reshape(-1) for ids in sequences]
    if not parts or min(map(len, parts)) < least:
        raise ConfigurationError(f"give at least one of the {what}, each of at least {least} tokens")
    return parts
