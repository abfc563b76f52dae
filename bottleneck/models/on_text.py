"""What can be measured as a language model: hidden states for the contexts of a text, and a head on top of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..heads import Head, RankBound
from .text import Text


class Cost(NamedTuple):
    """What it takes to make the hidden states of all contexts once, known before any is made."""

    operations: float
    """Floating-point operations."""
    memory_bytes: int
    """Of the weights, the head's among them, and of the hidden states that are kept."""


class ModelOnText(ABC):
    """A language model and the text it reads. Subclasses are final and say where the hidden states come from."""

    contexts: int
    """T."""
    dtype: str
    """``"float32"`` or ``"float64"``, what the head computes in."""
    targets: NDArray[np.int64] | None = None
    """(T,), the token that came after each context, where it is known."""
    text: Text | None = None
    """The text that the targets stand in, where it is known."""
    description: Mapping[str, Any]
    """``path``, ``kind``, ``head``, ``corpus`` and ``split``, and what else the report says of the source."""
    columns: int | None = None
    """How many tokens, from the first, are columns; ``None`` for all that the head has."""
    least_rows: int = 1
    """Of a block of log-probabilities; more where the product reads a large W."""
    own_tokens: int | None = None
    """How many tokens are the tokenizer's, where the head may have rows for more: they are reported alone as well."""

    @property
    @abstractmethod
    def head(self) -> Head:
        """The head with its weights, in `dtype`."""

    @property
    def skeleton(self) -> Head:
        """The head, for its sizes alone: its weights need not be loaded."""
        return self.head

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Hashes of all that decides the numbers."""

    @property
    def rank_bound(self) -> RankBound:
        """What algebra says of the rank of log P."""
        return self.head.rank_bound

    @abstractmethod
    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the hidden states of ascending ranges of contexts, (n, hidden_size) each."""

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """What it takes to make all hidden states once; nothing is loaded or run."""
