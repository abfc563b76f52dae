"""Tokens and their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..errors import CorpusError

UNK = "<unk>"
EOS = "<eos>"


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """The ``M`` tokens a language model can predict; a token's id is its place.

    ``tokens`` are distinct; a token that comes twice raises `CorpusError`.

    >>> Vocabulary.of(["a", "rose", "is", "a", "rose", EOS]).tokens
    ('a', 'rose', 'is', '<eos>')
    """

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.index) != len(self.tokens):
            twice = next(token for place, token in enumerate(self.tokens) if self.index[token] != place)
            raise CorpusError(f"the vocabulary holds the token {twice!r} twice: each token may come once")

    def __repr__(self) -> str:
        """Return the number of tokens and the first of them."""
        return (
            f"Vocabulary({len(self):,} tokens: {', '.join(map(repr, self.tokens[:4]))}{', …' if len(self) > 4 else ''})"
        )

    @classmethod
    def of(cls, tokens: Iterable[str]) -> Vocabulary:
        """Return the distinct ``tokens`` in order of first appearance."""
        return cls(tuple(dict.fromkeys(tokens)))

    @classmethod
    def most_frequent(cls, counts: Mapping[str, int], size: int, *, marks: Sequence[str]) -> Vocabulary:
        """Return ``marks`` and the most frequent tokens, ``size`` together; ties are in alphabetical order."""
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls((*marks, *(token for token, _ in ranked[: size - len(marks)])))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def index(self) -> dict[str, int]:
        """Each token's id."""
        return {token: place for place, token in enumerate(self.tokens)}

    def encode(self, tokens: Iterable[str], where: str = "the text") -> npt.NDArray[np.int64]:
        """Return the ids of ``tokens``, 1-D int64; an unknown one is a `CorpusError` naming ``where``.

        An unknown token is never turned into `UNK` here: that would change the perplexity without a word.
        """
        try:
            return np.fromiter(map(self.index.__getitem__, tokens), dtype=np.int64)
        except KeyError as error:
            raise CorpusError(
                f"{where}: the token {error.args[0]!r} is not among the {len(self)} of the vocabulary; "
                f"use the corpus that the vocabulary was made from, or write "
                f"{UNK if UNK in self.index else 'a known token'} in its place"
            ) from None

    def encode_known(self, tokens: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return the ids of ``tokens``, 1-D int64; an unknown one becomes `UNK`, where a corpus is prepared so."""
        unknown = self.index[UNK]
        return np.fromiter((self.index.get(token, unknown) for token in tokens), np.int64)

    def decode(self, ids: npt.NDArray[np.int64]) -> list[str]:
        """Return the tokens of ``ids``, a 1-D array of ids in ``[0, M)``; others are a `CorpusError`."""
        outside = ids[(ids < 0) | (ids >= len(self))]
        if outside.size:
            raise CorpusError(f"the id {outside[0]} is not a token: the vocabulary's ids are 0 to {len(self) - 1}")
        return [self.tokens[place] for place in ids.tolist()]

    def names(self, ids: list[int]) -> list[str]:
        """Return each token; see `decode`."""
        return self.decode(np.asarray(ids, dtype=np.int64))

    json = unknown = None
    special = ()

    @cached_property
    def separator(self) -> str:
        """A space between words, nothing between characters."""
        return "" if all(len(token) == 1 for token in self.tokens if token != EOS) else " "

    def spelled(self, ids: list[int]) -> list[str]:
        """Return each token; the end of a line is one character."""
        return ["\n" if word == EOS else word for word in self.names(ids)]

    def join(self, ids: list[int]) -> str:
        """Return the tokens, words separated by spaces."""
        return self.separator.join(self.names(ids))

    def ends_line(self, token: int) -> bool:
        """Return whether a token is the end of a line."""
        return self.tokens[token] == EOS
