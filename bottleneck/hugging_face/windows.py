"""Windows of a long text for a model of bounded context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..errors import ConfigurationError, SourceError


class Window(NamedTuple):
    """Consecutive tokens that are read at once, and the contexts that end in them."""

    start: int
    """Index of the first token."""
    length: int
    """Number of tokens."""
    skipped: int
    """Number of tokens before the end of the first context that is used; earlier contexts are too short."""


@dataclass(frozen=True)
class Windows:
    """Windows of L = ``context_length`` tokens, each ``stride`` tokens after the one before.

    A context is all tokens of its window up to one of them, and it has at least L − stride + 1 tokens. So each token
    from index L − stride + 1 on is predicted in exactly one window, and row r of the matrix predicts token
    ``minimum + r``.

    Raises:
        ConfigurationError: for a stride outside 1 to L.
        SourceError: for a text without one whole window and a token to predict.
    """

    tokens: int
    """Length of the text."""
    context_length: int
    """L."""
    stride: int

    def __post_init__(self) -> None:
        if self.context_length < 1 or not 1 <= self.stride <= self.context_length:
            raise ConfigurationError(
                f"--stride must be between 1 and --context-length, not {self.stride:,} with {self.context_length:,}"
            )
        if self.tokens <= self.context_length:
            raise SourceError(
                f"the text has {self.tokens:,} tokens, and one window of {self.context_length:,} and the token after "
                "it need more: give a longer text, or a smaller --context-length"
            )

    @property
    def minimum(self) -> int:
        """Number of tokens of the shortest context."""
        return self.context_length - self.stride + 1

    @property
    def contexts(self) -> int:
        """The number T of predicted tokens."""
        return self.tokens - self.minimum

    def window(self, number: int, contexts: int) -> Window:
        """Return one window; the last one ends with the context of row ``contexts`` − 1."""
        start = number * self.stride
        return Window(start, min(self.context_length, self.minimum + contexts - 1 - start), self.minimum - 1)
