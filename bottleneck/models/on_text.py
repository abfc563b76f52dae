"""The base class of language models on a text: hidden states for its contexts, and a head on top of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import SourceError
from ..heads import Head, RankBound
from ..spectrum.replaced import MASK
from .text import Text


def first_contexts(asked: int | None, available: int, of: str = "there are") -> int:
    """Return how many contexts are measured; `SourceError` where there are fewer than ``asked``."""
    if asked is None:
        return available
    if not hasattr(asked, "__index__") or not 1 <= asked.__index__() <= available:
        raise SourceError(f"--contexts must be between 1 and the {available:,} {of}, not {asked!r}")
    return int(asked)


def masked_bias(bias: Tensor, *, scale: float = 1.0) -> Tensor:
    """Return an output bias with −∞ for the tokens that it masks by a large negative number."""
    return bias.where(bias * scale >= MASK + bias.max() * scale, -torch.inf)


class Cost(NamedTuple):
    """The cost of computing the hidden states of all contexts once, known before any is computed."""

    operations: float
    """Floating-point operations."""
    memory_bytes: int
    """Bytes of the weights, including the head's, and of the hidden states that are kept."""


class ModelOnText(ABC):
    """A language model and the text it reads. Subclasses are final and say where the hidden states come from."""

    contexts: int
    """T."""
    dtype: str
    """Type that the head computes in, ``"float32"`` or ``"float64"``."""
    targets: NDArray[np.int64] | None = None
    """(T,), the token that follows each context, if it is known."""
    text: Text | None = None
    """The text that holds the targets, if it is known."""
    description: Mapping[str, Any]
    """``path``, ``kind``, ``head``, ``corpus``, ``split`` and further entries of the report's ``source``."""
    columns: int | None = None
    """Number of tokens, from the first, that are columns; ``None`` for all tokens of the head."""
    least_rows: int = 1
    """Least number of rows of a block of log-probabilities; more if the product reads a large W."""
    own_tokens: int | None = None
    """Number of tokens of the tokenizer, if the head may have rows for more; these tokens are also reported alone."""

    @property
    @abstractmethod
    def head(self) -> Head:
        """The head with its weights, in `dtype`."""

    @property
    def skeleton(self) -> Head:
        """The head for its sizes; its weights may not be loaded."""
        return self.head

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Hashes of everything that the numbers depend on."""

    @property
    def rank_bound(self) -> RankBound:
        """The algebraic bound on the rank of log P."""
        return self.head.rank_bound

    @abstractmethod
    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the hidden states of ascending ranges of contexts, (n, hidden_size) each."""

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """The cost of computing all hidden states once; nothing is loaded or run."""
