"""A text as token ids: where its parts begin, what is predicted in it, and what the tokens are called."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self, final

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer[Any]]
SPELLED = 0.001
"""Share of a text's bytes by which those of its tokens may differ, such as a space before it and its last newline."""


class Names(Protocol):
    """What knows the text of tokens: a `Vocabulary` or a model's tokenizer."""

    @property
    def json(self) -> str | None:
        """The file ``tokenizer.json`` of the package tokenizers, if there is one."""

    def names(self, ids: list[int]) -> list[str]:
        """Return each token as text."""

    def spelled(self, ids: list[int]) -> list[str]:
        """Return each token as text, in which half a surrogate stands for a byte that is a part of a character."""

    def join(self, ids: list[int]) -> str:
        """Return consecutive tokens as text."""

    def ends_line(self, token: int) -> bool:
        """Return whether a token ends its line."""

    @property
    def unknown(self) -> int | None:
        """The token that stands for any text that has no other, if there is one."""

    @property
    def special(self) -> Collection[int]:
        """The tokens that stand for no text, such as the end of a document."""

    @property
    def separator(self) -> str:
        """What stands between two tokens of a line; empty where each token holds its own spaces."""

    def __len__(self) -> int:
        """Return the number of tokens."""


def token_bytes(tokenizer: Names, ids: Ids) -> NDArray[np.int64]:
    """Return the number of bytes of each of consecutive tokens, (N,), with what separates it from the one before it."""
    tokens, places = np.unique(ids, return_inverse=True)
    spelled = tokenizer.spelled(tokens.tolist())
    sizes = np.array([len(each.encode(errors="surrogateescape")) for each in spelled], np.int64)[places]
    if tokenizer.separator:
        is_end = np.array([tokenizer.ends_line(token) for token in tokens.tolist()])[places]
        sizes[1:] += len(tokenizer.separator) * ~(is_end[1:] | is_end[:-1])
    return sizes


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Text:
    """Token ids, whatever they came from: a corpus, a file, a data set, a server's answers."""

    ids: Ids
    """(N,), all tokens, those before the first prediction too."""
    starts: Ids
    """(n,), ascending: where each part begins; no context reaches into the part before."""
    scored: Ids | None = None
    """(T,), ascending: the indices of the predicted tokens; ``None`` for all but the first of each part."""
    prefix: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    """Special tokens at the start of every window."""
    joined: Ids | None = None
    """(n,), ascending: where each of several texts begins that were joined to one part, up to a few tokens."""
    tokenizer: Names | None = None
    name: str | None = "token ids"
    """Name of the corpus, file or data set, if it has one."""
    split: str | None = None
    sha256: str = ""
    """Hash of the text."""
    size: int | None = None
    """Bytes of the text, if they are known: some tokenizers leave some out, such as spaces."""

    @cached_property
    def places(self) -> Ids:
        """(T,), the index of the token that each row of a matrix predicts."""
        return np.delete(np.arange(len(self.ids)), self.starts) if self.scored is None else self.scored

    def scoring(self, places: Ids) -> Self:
        """Return the same text with other predictions."""
        return replace(self, scored=places)

    def before(self, row: int, length: int) -> str:
        """Return the text of the ``length`` tokens before the token that a row predicts."""
        end = int(self.places[row])
        return self._join(max(self._part(end)[0], end - length), end)

    def last(self, rows: int) -> Ids:
        """Return the last token of the contexts of the first ``rows`` rows."""
        return self.ids[self.places[:rows] - 1]

    def history_hashes(self, rows: int) -> list[int]:
        """Return a hash of all tokens before each of the first ``rows`` predicted ones in its part."""
        before, history, begins = [], 0, {*self.starts.tolist()}
        places = self.places[:rows]
        for place, token in enumerate(self.ids[: places.max(initial=-1) + 1].tolist()):
            history = 0 if place in begins else history
            before.append(history)
            history = hash((history, token))
        return [before[place] for place in places.tolist()]

    def names(self, ids: list[int]) -> list[str]:
        """Return each token as text, or as its number where no tokenizer is known."""
        return self.tokenizer.names(ids) if self.tokenizer else [f"<{token}>" for token in ids]

    def bytes_of(self, rows: NDArray[np.bool_]) -> int | None:
        """Return the bytes of the tokens that some of the rows predict; ``None`` where their texts are not known.

        Where the tokens do not spell the text, each has a part of the text's bytes in proportion to its own. Special
        tokens of given ids stand for no text.
        """
        if self.tokenizer is None:
            return None
        places, sizes = self.places[: len(rows)][rows], token_bytes(self.tokenizer, self.ids)
        if self.size is None:
            sizes[np.isin(self.ids, [*self.tokenizer.special])] = 0
        count, spelled = int(sizes[places].sum()), int(sizes.sum())
        if self.size is not None and abs(spelled - self.size) <= SPELLED * self.size:
            return count
        if (self.ids[places] == self.tokenizer.unknown).any():  # what they stand for is not known
            return None
        return count if self.size is None else round(count / spelled * self.size)

    def beginnings(self, rows: int, *, joined: bool = False) -> NDArray[np.int64]:
        """Return those of the first ``rows`` rows that predict the first token of a part, or of a text in one."""
        starts = self.joined if joined and self.joined is not None else self.starts
        parts = np.searchsorted(starts, self.places[:rows], side="right")
        return np.flatnonzero(np.diff(parts, prepend=-1)).astype(np.int64)

    def sentence(self, row: int, length: int) -> str:
        """Return the line of the token that a row predicts, at most ``length`` tokens to either side of it."""
        if self.tokenizer is None:
            return ""
        place = int(self.places[row])
        begin, end = self._part(place)
        first, last = max(begin, place - length), min(end - 1, place + length)
        ends = [number for number in range(first, last + 1) if self.tokenizer.ends_line(int(self.ids[number]))]
        start = max((number + 1 for number in ends if number < place), default=first)
        stop = min((number + 1 for number in ends if number >= place), default=last + 1)
        return self._join(start, stop).strip("\n")

    def _join(self, start: int, stop: int) -> str:
        return self.tokenizer.join(self.ids[start:stop].tolist()) if self.tokenizer else ""

    def _part(self, place: int) -> tuple[int, int]:
        """Return the index of the first token of the part that holds the token at an index, and that after its last."""
        part = int(np.searchsorted(self.starts, place, side="right"))
        return int(self.starts[part - 1]), int([*self.starts[part : part + 1], len(self.ids)][0])
