"""A language model on a text: hidden states for its contexts, and a head on top of them, as a matrix."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.devices import exact
from ..core.full_precision import full_precision
from ..errors import SourceError
from ..heads import Head, RankBound, Softmax
from ..heads.scores import Factors
from ..spectrum import Precision, precision
from ..spectrum.replaced import MASK
from .source import Block, Cost, FactorRows, RightFactor, Source

Ids = NDArray[np.int64]
OFFSET = 100.0
"""Least mean of an output bias whose roundoff counts; that of a smaller one is lost beside the log-probabilities'."""
LEAST_ROWS, LARGE = 192, 1 << 22
"""Least number of rows of a block whose product reads a W of so many entries, more than a processor's cache holds: with
fewer rows memory bandwidth limits it."""


def joined(histories: Ids, future: Ids) -> Ids:
    """Return histories (n, L), each followed by the same future."""
    return np.concatenate([histories, np.tile(future, (len(histories), 1))], 1)


def masked_bias(bias: Tensor, *, scale: float = 1.0) -> Tensor:
    """Return an output bias with −∞ for the tokens that it masks by a large negative number.

    Raises:
        SourceError: for NaN, +∞, or a bias that masks all tokens.
    """
    if not (bias < torch.inf).all() or not bias.isfinite().any():
        raise SourceError("the bias of an output layer must hold finite numbers, and −∞ only for tokens that it masks")
    return bias.where(bias * scale >= MASK + bias.max() * scale, -torch.inf)


class ModelOnText(Source):
    """The log-probabilities of a language model on a text. Subclasses say where the hidden states come from.

    `dtype` is the type that the head computes in.
    """

    contexts: int
    """T."""
    columns: int | None = None
    """Number of tokens, from the first, that are columns; ``None`` for all tokens of the head. Only a softmax may have
    fewer than all."""
    own_tokens: int | None = None
    """Number of tokens of the tokenizer, if the head may have rows for more; these tokens are also reported alone."""

    @property
    @abstractmethod
    def full_head(self) -> Head:
        """The head with its weights for all tokens, in `dtype`."""

    @property
    def skeleton(self) -> Head:
        """The head for its sizes; its weights may not be loaded."""
        return self.full_head

    @abstractmethod
    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the hidden states of ascending ranges of contexts in the head's type, (n, hidden_size) each."""

    @property
    @abstractmethod
    def body_cost(self) -> Cost:
        """The cost of computing all hidden states once, with the bytes of the head; nothing is loaded or run."""

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(T, M)."""
        vocab_size = self.skeleton.vocab_size
        return self.contexts, min(self.columns or vocab_size, vocab_size)

    @property
    def embedding_size(self) -> int:  # type: ignore[override]
        """d."""
        return self.skeleton.embedding_size

    @property
    def precision(self) -> Precision:
        """The precision of the head; roundoff of the hidden states is part of the matrix."""
        return precision(self.dtype)

    @property
    def rows_precision(self) -> Precision:
        """The precision with the mean of the output bias: normalization hides how large the rounded logits were."""
        bias = self.head.bias
        offset = 0.0 if bias is None else abs(float(exact(bias.detach()[bias.isfinite()]).mean()))
        return replace(self.precision, size=offset) if offset > OFFSET else self.precision

    @property
    def bound(self) -> RankBound:  # type: ignore[override]
        """The algebraic bound on the rank of log P."""
        return self.full_head.rank_bound

    @cached_property
    def head(self) -> Head:
        """The head, restricted to the tokens that are columns."""
        head, columns = self.full_head, self.shape[1]
        if columns == head.vocab_size:
            return head
        if not isinstance(head, Softmax):
            raise SourceError(f"{self.description['path']}: columns can be left out of a softmax's matrix only")
        bias = None if head.bias is None else head.bias[:columns].detach()
        return Softmax.of(head.weight[:columns].detach(), bias, scale=head.scale, soft_cap=head.soft_cap)

    def _keep_first(self, contexts: int) -> None:
        self.contexts = contexts

    def without_padding(self) -> Self | None:
        """Return the renormalized matrix of the tokenizer's tokens, if the head has rows for more tokens."""
        if self.own_tokens is None or self.own_tokens >= self.shape[1]:
            return None
        part = copy.copy(self)
        part.columns = self.own_tokens
        vars(part).pop("head", None)
        return part

    def linear(self, hidden: Tensor) -> Factors | None:
        """Return H, W and b of the logits H Wᵀ + b for a log-linear head, otherwise ``None``; the median of b is zero.

        An offset of b changes no probability, only roundoff.
        """
        with full_precision():
            factors = self.head.scores(hidden).linear
        if factors is None or factors.bias is None:
            return factors
        return factors._replace(bias=factors.bias - factors.bias[factors.bias.isfinite()].median())

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield log P of ascending ranges of contexts; see `Source.blocks`."""
        chosen = self.ranges() if ranges is None else list(ranges)
        for rows, hidden in zip(chosen, self.hidden(chosen), strict=True):
            with full_precision():
                log_probs = self.head.log_prob(hidden).cpu().numpy()
            yield Block(rows.start, log_probs)

    @cached_property
    def factor_columns(self) -> int | None:  # type: ignore[override]
        """Number of columns of the thin factors of a log-linear head, whose weights may be on the meta device."""
        head = self.skeleton
        hidden = torch.zeros(1, head.hidden_size, device=head.weight.device, dtype=head.weight.dtype)
        with full_precision():
            factors = head.scores(hidden).linear
        return None if factors is None else factors.weight.shape[1] + 1 + int(factors.bias is not None)

    def factors(self) -> FactorRows | None:
        """Return X = [H, 1, −log Z] and Y = [W, b, 1] of a log-linear head; log Z is streamed."""
        if self.factor_columns is None:
            return None
        (hidden,) = self.hidden([range(1)])
        factors = self.linear(hidden)
        assert factors is not None
        return FactorRows(self._left, RightFactor(factors.weight, factors.bias))

    def _left(self, ranges: Iterable[range]) -> Iterator[NDArray[Any]]:
        for hidden in self.hidden(ranges):
            with full_precision():
                factors = self.linear(hidden)
                assert factors is not None
                contexts, weight, bias = factors
                log_partitions = log_partition(torch.nn.functional.linear(contexts, weight, bias))
                beside = [] if bias is None else [torch.ones_like(log_partitions)]
                rows = torch.cat([contexts, *beside, -log_partitions], 1)
            yield rows.cpu().double().numpy()

    @property
    def cost(self) -> Cost:
        """The cost of the model and of the product with W; no weights are loaded."""
        contexts, columns = self.shape
        product = 2.0 * contexts * columns * self.embedding_size
        return self.body_cost._replace(operations=self.body_cost.operations + product)

    def rows_at_once(self) -> int:
        """Return the number of rows in one block."""
        least = LEAST_ROWS if self.shape[1] * self.embedding_size >= LARGE else 1
        return min(self.contexts, max(least, super().rows_at_once()))


def log_partition(logits: Tensor) -> Tensor:
    """Return log Z of each row, (n, 1)."""
    # The fused kernel of log_softmax gives log Z as z − (z − log Z) of one column, in half the passes of a logsumexp.
    # The column is the likeliest token of one context, because any other may be masked.
    column = logits[:1].argmax(1)
    return logits[:, column] - torch.log_softmax(logits, 1)[:, column]
