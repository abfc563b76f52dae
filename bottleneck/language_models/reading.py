"""How a model reads a text: in spans, and what each of them predicts; or as lines and the lines before them."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..corpora import EOS, UNK, Corpus
from ..errors import CorpusError
from .text import Ids

PADDING = -1
"""In the targets of a batch: nothing is predicted there. In its contexts: no token."""
LARGEST_IN_MEMORY = 1 << 30
"""Bytes of hidden states above which they are kept in a temporary file, which is read in order."""

NONE = np.empty(0, np.int64)
"""No tokens."""


class Batch(NamedTuple):
    """Spans of a text that a model reads side by side."""

    inputs: Tensor
    """int64, (L, B), the tokens read, and 0 after the end of a span that is shorter than L."""
    targets: Tensor
    """int64, (L, B), the token after each of them, or `PADDING` where none is predicted."""
    contexts: Tensor | None = None
    """int64, (W, N, B), the N tokens of each of the W lines that a span answers, the first line first, with `PADDING`
    after the last token and the last line; ``None`` where a text goes on."""
    lengths: Tensor | None = None
    """int64, (B,), the number of tokens read of each span; ``None`` where all are L."""
    ignore_index: int | None = None
    """`PADDING` if some targets are not predicted, ``None`` where all are."""

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        moved: Any = {name: each.to(device) for name, each in self._tensors()}
        return self._replace(**moved)

    def columns(self, part: slice) -> Batch:
        """Return some of the spans."""
        parts: Any = {name: each[..., part] for name, each in self._tensors()}
        return self._replace(**parts)

    def _tensors(self) -> list[tuple[str, Tensor]]:
        return [(name, each) for name, each in self._asdict().items() if isinstance(each, Tensor)]

    @property
    def scored(self) -> int:
        """The number of tokens that are predicted."""
        return self.targets.numel() if self.ignore_index is None else int((self.targets != PADDING).sum())


class Reading:
    """A text as a model reads it: spans, some at once, each with the tokens that are predicted in it.

    A context is all tokens of its span before the token that it predicts, and where spans carry on, all before those.

    Args:
        ids: (N,), all tokens of the text.
        places: int64, (T,), ascending: the index of the token that each row predicts, in the last span that begins
            ``least`` or more tokens before it.
        starts: int64, (n,), ascending: the index of each span's first token.
        least: number of tokens of the shortest context.
        at_once: spans in a batch.
        carries: whether a span starts in the state after the one before it; then a batch is one span.
        prefix: (n,), special tokens that are read before each span.
    """

    def __init__(
        self,
        ids: Ids,
        places: Ids,
        starts: Ids,
        *,
        least: int = 1,
        at_once: int = 1,
        carries: bool = False,
        prefix: Ids = NONE,
    ) -> None:
        first = np.searchsorted(places, starts + least)
        has_rows = first < np.append(first[1:], len(places))
        self.ids, self.places, self.starts, self.least = ids, places, starts[has_rows], least
        self.at_once, self.carries, self.prefix = at_once, carries, prefix
        self.rows = np.append(first[has_rows], len(places))
        """(n + 1,): span i predicts the rows from ``rows[i]`` to ``rows[i + 1] - 1``."""
        self.lengths = places[self.rows[1:] - 1] - self.starts
        """(n,), the number of tokens that are read in each span."""

    @property
    def edges(self) -> Ids:
        """(batches + 1,), the first row of each batch, and T."""
        return np.append(self.rows[: -1 : self.at_once], self.rows[-1])

    @property
    def targets(self) -> NDArray[np.int64]:
        """(T,), every predicted token."""
        return np.asarray(self.ids[self.places], dtype=np.int64)

    @cached_property
    def _is_predicted(self) -> NDArray[np.bool_]:
        predicted = np.zeros(len(self.ids), bool)
        predicted[self.places] = True
        return predicted

    def first(self, rows: int) -> Self:
        """Return the same text with its first rows alone."""
        part = copy.copy(self)
        vars(part).pop("_is_predicted", None)
        more = {name: getattr(self, name) for name in ("least", "at_once", "carries", "prefix")}
        Reading.__init__(part, self.ids, self.places[:rows], self.starts, **more)
        return part

    def batch(self, number: int) -> Batch:
        """Return consecutive spans whose predicted tokens are the rows from ``edges[number]`` to ``edges[number + 1]``.

        They come span after span, not token after token: the rows are ``batch.targets.T`` without its padding.
        """
        return self.of(np.arange(number * self.at_once, min((number + 1) * self.at_once, len(self.starts))))

    def of(self, spans: Sequence[int] | Ids) -> Batch:
        """Return any spans, by number, as one batch."""
        spans = np.asarray(spans)
        starts, lengths = self.starts[spans], self.lengths[spans]
        places = starts + np.arange(lengths.max() + 1)[:, None]
        tokens = np.asarray(self.ids[np.minimum(places, len(self.ids) - 1)], dtype=np.int64)
        is_read = np.arange(len(tokens) - 1)[:, None] < lengths
        counts = is_read & self._is_predicted[np.minimum(places[1:], len(self.ids) - 1)]
        counts &= places[1:] >= self.places[self.rows[spans]]
        inputs, targets = np.where(is_read, tokens[:-1], 0), np.where(counts, tokens[1:], PADDING)
        if size := len(self.prefix):
            inputs = np.concatenate([np.tile(self.prefix[:, None], len(spans)), inputs])
            targets = np.concatenate([np.full((size, len(spans)), PADDING), targets])
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(targets),
            lengths=torch.from_numpy(lengths + size),
            ignore_index=None if counts.all() and not size else PADDING,
        )


def stream(ids: Ids, *, length: int) -> Reading:
    """Return a text of ``ids``, (N,), as one sequence: every token but the first is predicted from all before it.

    A span has ``length`` tokens; the state is carried over.
    """
    return Reading(ids, np.arange(1, len(ids)), np.arange(0, max(len(ids) - 1, 0), length), carries=True)


def in_order(targets: Ids) -> Reading:
    """Return a text of which only the predicted tokens are known, (T,), or `PADDING`."""
    return stream(np.append(PADDING, targets), length=max(1, len(targets)))


@final
class Pairs(Reading):
    """A text as pairs: every line but a paragraph's first, given up to ``lines`` lines of its paragraph before it.

    A paragraph ends with a blank line: it is a conversation, and its lines are utterances. The first token of a line,
    its speaker, is given; the other tokens and the end of the line are predicted. A line of unknown words alone is read
    as context and is never predicted. `CorpusError` for a split without a line that answers another.
    """

    def __init__(self, corpus: Corpus, split: str, *, lines: int, at_once: int) -> None:
        ids, index = corpus.split(split), corpus.vocabulary.index
        if EOS not in index:
            raise CorpusError(f"{corpus.name} has no lines ({EOS} is not in its vocabulary): pairs of lines need them")
        self.stops = np.flatnonzero(ids == index[EOS]) + 1
        self.firsts = np.concatenate([[0], self.stops[:-1]])
        blank = self.stops - self.firsts == 1
        opened = np.maximum.accumulate(np.where(blank, np.arange(len(blank)) + 1, 0))
        is_word = (ids != index[EOS]) & (ids != index.get(UNK, PADDING))  # neither a line's first token nor its end
        is_word[self.firsts] = False
        has_words = np.add.reduceat(is_word.astype(np.int64), self.firsts) > 0 if len(blank) else blank
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
        starts = self.firsts[self.answers]
        sizes = self.stops[self.answers] - starts - 1
        places = np.arange(sizes.sum()) + np.repeat(starts + 1 - (np.cumsum(sizes) - sizes), sizes)
        super().__init__(ids, places, starts, at_once=at_once)

    def __len__(self) -> int:
        return len(self.answers)

    def of(self, spans: Sequence[int] | Ids) -> Batch:
        """Return any pairs, by number, as one batch."""
        pairs = np.asarray(spans)
        numbers = self.answers[pairs] + np.arange(-self.lines, 0)[:, None]  # (W, B)
        before = np.minimum(self.answers[pairs] - self.opened[pairs], self.lines)
        numbers = numbers + (self.lines - before)  # the first line comes first, whatever their number
        numbers = np.where(np.arange(self.lines)[:, None] < before, numbers, PADDING)[: before.max()]
        lines = numbers.ravel()
        firsts, stops = self.firsts[lines], np.where(lines == PADDING, 0, self.stops[lines])
        places = firsts + np.arange((stops - firsts).max())[:, None]
        tokens = np.where(places < stops, self.ids[np.minimum(places, len(self.ids) - 1)], PADDING)
        contexts = np.ascontiguousarray(tokens.astype(np.int64).reshape(-1, *numbers.shape).swapaxes(0, 1))
        return super().of(pairs)._replace(contexts=torch.from_numpy(contexts), ignore_index=PADDING)

    @cached_property
    def references(self) -> list[list[int]]:
        """The predicted tokens of each pair, without the end of the line."""
        return [self.ids[self.firsts[line] + 1 : self.stops[line] - 1].tolist() for line in self.answers]


def read(corpus: Corpus, split: str, *, lines: int | None, length: int, at_once: int = 64) -> Reading:
    """Return a split as a model reads it whose `Backbone.context_lines` are ``lines``.

    Batches have ``length`` tokens of a stream, or ``at_once`` texts or pairs.
    """
    if lines is not None:
        if corpus.starts is not None:
            raise CorpusError("a model that answers the lines before a line reads one text: give its ids as one row")
        return Pairs(corpus, split, lines=lines, at_once=at_once)
    ids = corpus.split(split)
    if corpus.starts is None:
        return stream(ids, length=length)
    return Reading(ids, np.delete(np.arange(len(ids)), corpus.starts), corpus.starts, at_once=at_once)


@dataclass(frozen=True, eq=False)
class Chosen:
    """Some rows of a matrix that gives rows by slices, such as `States`."""

    matrix: Any
    places: NDArray[np.int64]
    """(T,), ascending."""

    def __getitem__(self, rows: slice) -> Any:
        """Return the rows at some of the places."""
        places = self.places[rows]
        return self.matrix[places[0] : places[-1] + 1][places - places[0]]


class States:
    """The rows of H, (T, d); each batch is encoded once, on demand, and in order where spans carry on.

    Args:
        encode: function from a batch and the state before it to hidden states (L, B, d) and the state after them.
        reading: the text.
        size: d.
        dtype: type of the hidden states.
    """

    def __init__(
        self,
        encode: Callable[[Batch, Any], tuple[Tensor, Any]],
        reading: Reading,
        *,
        size: int,
        dtype: torch.dtype,
    ) -> None:
        self._encode, self._reading, self._edges = encode, reading, reading.edges
        self._done: set[int] = set()
        self._state: Any = None
        shape = (len(reading.places), size)
        if shape[0] * shape[1] * dtype.itemsize <= LARGEST_IN_MEMORY:
            self._rows = torch.empty(shape, dtype=dtype)
        else:
            with tempfile.NamedTemporaryFile(prefix="hidden-states-") as file:
                # The mapping outlives the file's name, so the disk space is freed whenever the process ends.
                self._rows = torch.from_file(file.name, shared=True, size=shape[0] * shape[1], dtype=dtype).view(shape)

    def __getitem__(self, rows: slice) -> Tensor:
        """Return the hidden states of some contexts, on the CPU: (n, d)."""
        ends = rows.start, rows.stop - 1
        first, last = (int(each) - 1 for each in np.searchsorted(self._edges, ends, side="right"))
        for number in range(len(self._done) if self._reading.carries else first, last + 1):
            if number not in self._done:
                batch = self._reading.batch(number)
                hidden, self._state = self._encode(batch, self._state if self._reading.carries else None)
                predicted = (batch.targets != PADDING).T.to(hidden.device)
                self._rows[self._edges[number] : self._edges[number + 1]] = hidden.transpose(0, 1)[predicted].cpu()
                self._done.add(number)
        return self._rows[rows]
