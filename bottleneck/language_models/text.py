"""The text that the rows of a matrix predict, for people who read a comparison."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from ..corpora import EOS, Vocabulary


class Text(ABC):
    """A sequence of tokens; row r of a matrix predicts the token at index ``places[r]``.

    Args:
        ids: (N,), all tokens, including those before the first prediction.
        places: (T,), index of the token that each row predicts.
        starts: (n,), ascending: where each text begins, if there are several.
    """

    def __init__(
        self, ids: NDArray[np.int64], places: NDArray[np.integer[Any]], starts: NDArray[np.int64] | None = None
    ) -> None:
        self.ids, self._places, self._starts = ids, places, [0] if starts is None else starts

    @abstractmethod
    def tokens(self, ids: list[int]) -> list[str]:
        """Return each token as text."""

    def spelled(self, ids: list[int]) -> list[str]:
        """Return each token as text, in which half a surrogate stands for a byte that is a part of a character."""
        return self.tokens(ids)

    @abstractmethod
    def join(self, ids: list[int]) -> str:
        """Return consecutive tokens as text."""

    @abstractmethod
    def ends_line(self, token: int) -> bool:
        """Return whether a token ends its line."""

    def before(self, row: int, length: int) -> str:
        """Return the text of the ``length`` tokens before the token that a row predicts."""
        end = int(self._places[row])
        return self.join(self.ids[max(self._span(end)[0], end - length) : end].tolist())

    @property
    def tokenizer_json(self) -> str | None:
        """The tokenizer as the file ``tokenizer.json`` of the package tokenizers, if it is one."""
        return None

    def last(self, rows: int) -> NDArray[np.int64]:
        """Return the last token of the contexts of the first ``rows`` rows."""
        return self.ids[self._places[:rows] - 1]

    def of_rows(self, rows: NDArray[np.bool_]) -> Self:
        """Return this text for some of the rows."""
        part = copy.copy(self)
        part._places = self._places[: len(rows)][rows]
        return part

    def beginnings(self, rows: int) -> NDArray[np.int64]:
        """Return those of the first ``rows`` rows that predict the first token of a text."""
        texts = np.searchsorted(self._starts, self._places[:rows], side="right")
        return np.flatnonzero(np.diff(texts, prepend=-1)).astype(np.int64)

    def _span(self, place: int) -> tuple[int, int]:
        """Return the index of the first token of the text that holds the token at an index, and that after its last."""
        text = int(np.searchsorted(self._starts, place, side="right"))
        return int(self._starts[text - 1]), int([*self._starts[text : text + 1], len(self.ids)][0])

    def sentence(self, row: int, length: int) -> str:
        """Return the line of the token that a row predicts, at most ``length`` tokens to either side of it."""
        place = int(self._places[row])
        begin, end = self._span(place)
        first, last = max(begin, place - length), min(end - 1, place + length)
        ends = [number for number in range(first, last + 1) if self.ends_line(int(self.ids[number]))]
        start = max((number + 1 for number in ends if number < place), default=first)
        stop = min((number + 1 for number in ends if number >= place), default=last + 1)
        return self.join(self.ids[start:stop].tolist()).strip("\n")


@final
class UnnamedText(Text):
    """A text of which only the ids are known."""

    def tokens(self, ids: list[int]) -> list[str]:
        """Return each id."""
        return [f"<{token}>" for token in ids]

    def join(self, ids: list[int]) -> str:
        """Return an empty text."""
        return ""

    def ends_line(self, token: int) -> bool:
        """Return ``False``."""
        return False


@final
class Words(Text):
    """A split of a corpus: words of a vocabulary, separated by spaces."""

    def __init__(
        self,
        ids: NDArray[np.int64],
        places: NDArray[np.integer[Any]],
        vocabulary: Vocabulary,
        starts: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(ids, places, starts)
        self._vocabulary = vocabulary

    def tokens(self, ids: list[int]) -> list[str]:
        """Return each word."""
        return self._vocabulary.decode(np.asarray(ids, dtype=np.int64))

    def join(self, ids: list[int]) -> str:
        """Return the words, separated by spaces."""
        return " ".join(self.tokens(ids))

    def ends_line(self, token: int) -> bool:
        """Return whether a token is the end of a line."""
        return self.tokens([token]) == [EOS]
