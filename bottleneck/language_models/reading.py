"""How a model reads a text: as one stream of tokens, or as pairs of a line and the lines before it that it answers."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..corpora import EOS, UNK, Corpus
from ..errors import CorpusError

PADDING = -1
"""In the targets of a batch: nothing is predicted there. In its contexts: no token."""

Ids = NDArray[np.integer[Any]]


class Batch(NamedTuple):
    """Texts that a model reads side by side."""

    inputs: Tensor
    """int64, (L, B), the tokens read."""
    targets: Tensor
    """int64, (L, B), the token after each of them; `PADDING` beyond the end of a text that is shorter than L."""
    contexts: Tensor | None = None
    """int64, (W, N, B), the N tokens of each of the W lines that a text answers, the first line first, with `PADDING`
    after the last token and the last line; ``None`` where a stream goes on."""

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        contexts = None if self.contexts is None else self.contexts.to(device)
        return Batch(self.inputs.to(device), self.targets.to(device), contexts)

    def columns(self, part: slice) -> Batch:
        """Return some of the texts."""
        contexts = None if self.contexts is None else self.contexts[..., part]
        return Batch(self.inputs[:, part], self.targets[:, part], contexts)

    @property
    def ignore_index(self) -> int | None:
        """The target that does not count; ``None`` where all do."""
        return None if self.contexts is None else PADDING

    @property
    def scored(self) -> int:
        """The number of tokens that are predicted."""
        return self.targets.numel() if self.contexts is None else int((self.targets != PADDING).sum())


class Reading(ABC):
    """One split of a corpus as a model reads it. Subclasses are final."""

    ids: Ids
    """(N,), all tokens of the text."""
    places: Ids
    """(T,), the index of every predicted token, in the order of the text."""
    starts: Ids
    """(batches + 1,), the first row of each batch, and T."""
    carries: bool
    """Whether a batch starts in the state after the one before it."""

    @abstractmethod
    def batch(self, number: int) -> Batch:
        """Return a batch whose predicted tokens are the rows from ``starts[number]`` to ``starts[number + 1]``.

        They come text after text, not token after token: the rows are ``batch.targets.T`` without its padding.
        """

    def first(self, batches: int) -> Reading:
        """Return the same text with its first batches alone."""
        part = copy.copy(self)
        part.starts = self.starts[: batches + 1]
        part.places = self.places[: part.starts[-1]]
        return part

    @property
    def targets(self) -> NDArray[np.int64]:
        """(T,), every predicted token."""
        return np.asarray(self.ids[self.places], dtype=np.int64)


@final
class Stream(Reading):
    """A text of ``ids``, (N,), as one sequence: every token but the first is predicted from all tokens before it.

    A batch has ``length`` tokens; the state is carried over.
    """

    carries = True

    def __init__(self, ids: Ids, *, length: int) -> None:
        self.ids, rows = ids, len(ids) - 1
        self.places = np.arange(1, len(ids))
        self.starts = np.append(np.arange(0, rows, length), rows)

    def batch(self, number: int) -> Batch:
        """Return consecutive tokens in one column; see `Reading.batch`."""
        first, stop = self.starts[number : number + 2]
        piece = torch.from_numpy(np.asarray(self.ids[first : stop + 1], dtype=np.int64)).unsqueeze(1)
        return Batch(piece[:-1], piece[1:])


@final
class Texts(Reading):
    """Several texts in ``ids``, (N,), that begin at ``starts``: every token but a text's first is predicted.

    A batch has ``at_once`` texts, and each starts in the initial state.
    """

    carries = False

    def __init__(self, ids: Ids, starts: Ids, *, at_once: int) -> None:
        stops = np.append(starts[1:], len(ids))
        is_read = stops - starts > 1
        self.ids, self._firsts, self._stops = ids, starts[is_read], stops[is_read]
        self.places = np.delete(np.arange(len(ids)), starts)
        ends = np.append(0, np.cumsum(self._stops - self._firsts - 1))
        self._edges = np.append(np.arange(0, len(self._firsts), at_once), len(self._firsts))
        self.starts = ends[self._edges]

    def batch(self, number: int) -> Batch:
        """Return consecutive texts as columns; see `Reading.batch`."""
        texts = slice(*self._edges[number : number + 2])
        return _batch(padded(self.ids, self._firsts[texts], self._stops[texts]))


@final
class Pairs(Reading):
    """A text as pairs: every line but a paragraph's first, given up to ``lines`` lines of its paragraph before it.

    A paragraph ends with a blank line: it is a conversation, and its lines are utterances. The first token of a line,
    its speaker, is given; the other tokens and the end of the line are predicted. A line of unknown words alone is read
    as context and is never predicted. `CorpusError` for a split without a line that answers another.
    """

    carries = False

    def __init__(self, corpus: Corpus, split: str, *, lines: int, at_once: int) -> None:
        self.ids, index = corpus.split(split), corpus.vocabulary.index
        if EOS not in index:
            raise CorpusError(f"{corpus.name} has no lines ({EOS} is not in its vocabulary): pairs of lines need them")
        self.stops = np.flatnonzero(self.ids == index[EOS]) + 1
        self.firsts = np.concatenate([[0], self.stops[:-1]])
        blank = self.stops - self.firsts == 1
        opened = np.maximum.accumulate(np.where(blank, np.arange(len(blank)) + 1, 0))
        has_words = np.add.reduceat(self._is_word(index), self.firsts) > 0 if len(blank) else blank
        number = np.arange(len(blank))
        self.lines = lines
        self.answers = number[~blank & (number > opened) & has_words]
        """(pairs,), the numbers of the lines that are predicted."""
        if not len(self.answers):
            raise CorpusError(
                f"the {split} split of {corpus.name} has no pair: a line of at least one known word after another, "
                "without a blank line between them"
            )
        self.opened = opened[self.answers]
        sizes = self._sizes(self.answers)
        ends = np.cumsum(sizes)
        self.places = np.arange(ends[-1]) + np.repeat(self.firsts[self.answers] + 1 - (ends - sizes), sizes)
        self.edges = np.append(np.arange(0, len(sizes), at_once), len(sizes))
        self.starts = np.append(0, ends)[self.edges]

    def __len__(self) -> int:
        return len(self.answers)

    def _is_word(self, index: Any) -> NDArray[np.int64]:
        """Return 1 for every word that is known, neither the line's first token nor its end."""
        is_word = (self.ids != index[EOS]) & (self.ids != index.get(UNK, PADDING))
        is_word[self.firsts] = False
        return is_word.astype(np.int64)

    def _sizes(self, lines: Ids) -> NDArray[np.int64]:
        """Return how many tokens of each line are predicted."""
        return np.asarray(self.stops[lines] - self.firsts[lines] - 1, dtype=np.int64)

    def batch(self, number: int) -> Batch:
        """Return consecutive pairs; see `Reading.batch`."""
        return self.of(np.arange(self.edges[number], self.edges[number + 1]))

    def of(self, pairs: Sequence[int] | Ids) -> Batch:
        """Return any pairs, by number, as one batch."""
        pairs = np.asarray(pairs)
        tokens = self._padded(self.answers[pairs])
        numbers = self.answers[pairs] + np.arange(-self.lines, 0)[:, None]  # (W, B)
        before = np.minimum(self.answers[pairs] - self.opened[pairs], self.lines)
        numbers = numbers + (self.lines - before)  # the first line comes first, whatever their number
        numbers = np.where(np.arange(self.lines)[:, None] < before, numbers, PADDING)[: before.max()]
        contexts = self._padded(numbers.ravel()).reshape(-1, *numbers.shape).swapaxes(0, 1)
        return _batch(tokens, contexts)

    def _padded(self, lines: Ids) -> NDArray[np.int64]:
        """Return the tokens of lines as columns, (N, lines); a line `PADDING` has none."""
        return padded(self.ids, self.firsts[lines], np.where(lines == PADDING, 0, self.stops[lines]))

    @cached_property
    def references(self) -> list[list[int]]:
        """The predicted tokens of each pair, without the end of the line."""
        return [self.ids[self.firsts[line] + 1 : self.stops[line] - 1].tolist() for line in self.answers]


def padded(ids: Ids, firsts: Ids, stops: Ids) -> NDArray[np.int64]:
    """Return texts as columns, (N, texts), with `PADDING` after the last token of each."""
    places = firsts + np.arange((stops - firsts).max())[:, None]
    return np.where(places < stops, ids[np.minimum(places, len(ids) - 1)], PADDING).astype(np.int64)


def _batch(tokens: NDArray[np.int64], *contexts: NDArray[np.int64]) -> Batch:
    """Return texts, given as columns, as a batch."""
    inputs = np.where(tokens[1:] == PADDING, 0, tokens[:-1])
    return Batch(*(torch.from_numpy(np.ascontiguousarray(each)) for each in (inputs, tokens[1:], *contexts)))


def read(corpus: Corpus, split: str, *, lines: int | None, length: int, at_once: int = 64) -> Reading:
    """Return a split as a model reads it whose `Backbone.context_lines` are ``lines``.

    Batches have ``length`` tokens of a stream, or ``at_once`` texts or pairs.
    """
    if lines is not None:
        if corpus.starts is not None:
            raise CorpusError("a model that answers the lines before a line reads one text: give its ids as one row")
        return Pairs(corpus, split, lines=lines, at_once=at_once)
    if corpus.starts is not None:
        return Texts(corpus.split(split), corpus.starts, at_once=at_once)
    return Stream(corpus.split(split), length=length)
