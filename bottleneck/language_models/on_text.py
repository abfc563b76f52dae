"""A language model, and a language model on a text: hidden states for its contexts, and a head on top, as a matrix."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, final

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
from ..spectrum.blocks import as_array
from .checked_product import SAMPLE
from .layer import OutputWeights
from .reading import Batch, Chosen, Reading, States, in_order
from .source import Block, Cost, FactorRows, RightFactor, Source
from .text import Ids, Text

OFFSET = 100.0
"""Least mean of an output bias whose roundoff counts; that of a smaller one is lost beside the log-probabilities'."""
LEAST_ROWS, LARGE = 192, 1 << 22
"""Least number of rows of a block whose product reads a W of so many entries, more than a processor's cache holds: with
fewer rows memory bandwidth limits it."""


class Model(ABC):
    """A language model without a text. Subclasses are final: a run, a model of transformers, or given hidden states."""

    about: dict[str, Any]
    """``path``, ``kind``, ``head``, and what else a report says of the model."""
    dtype: str
    """Type that the output layer computes in, ``"float32"`` or ``"float64"``."""
    body_dtype: torch.dtype
    """Type of the hidden states."""
    is_recurrent: bool = False
    """Whether the model reads a text of any length, with a state that is carried over."""
    mismatch: str = ""
    """Why the hidden states do not belong to the head, if that is known."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Hashes of the weights."""

    @property
    @abstractmethod
    def skeleton(self) -> Head:
        """The head for its sizes; its weights may not be loaded."""

    @abstractmethod
    def head(self, sample: Tensor) -> Head:
        """Return the head with its weights in `dtype`, after a check on a sample of ids, (L,)."""

    def bound(self, head: Head) -> RankBound:
        """Return the algebraic bound on the rank of log P."""
        return head.rank_bound

    @abstractmethod
    def layer(self) -> OutputWeights:
        """Return the output layer, which needs no text."""

    @abstractmethod
    def cost(self, tokens: int, contexts: int) -> Cost:
        """Return the cost of reading so many tokens, with the bytes of the head; nothing is loaded or run."""

    def encode(self, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Return the hidden states (L, B, d) of a batch, and the state after it."""
        raise NotImplementedError(f"a {type(self).__name__} reads no text")

    def states(self, reading: Reading) -> States | Tensor:
        """Return the hidden states of a text's contexts, which are computed on demand."""
        return States(self.encode, reading, size=self.skeleton.hidden_size, dtype=self.body_dtype)


@final
class ModelOnText(Source):
    """The log-probabilities of a language model on a text.

    `dtype` is the type that the head computes in.

    Args:
        model: the model.
        reading: the text as the model reads it.
        text: the text, whose `places` are those that the rows predict; ``None`` if it is not known.
        vocab: whether the tokenizer's tokens are also reported alone, ``"both"``, are the only columns,
            ``"tokenizer"``, or do not matter, ``"model"``, if the output layer has rows for more.
        about: what the description says beside the model's own and the text's name.
        settings: what changes the numbers beside the weights and the text.

    Raises:
        SourceError: for a text without a context.
    """

    def __init__(
        self,
        model: Model,
        reading: Reading,
        text: Text | None,
        *,
        vocab: str = "model",
        about: Mapping[str, Any] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.model, self.reading, self._settings = model, reading, settings or {}
        self.contexts, self.dtype = len(reading.places), model.dtype
        if not self.contexts:
            where = f"the {text.split} split of {text.name}" if text and text.split else "the text"
            raise SourceError(f"{where} has no context: it needs at least two tokens")
        self.text = text
        own = len(text.tokenizer) if text and text.tokenizer else None
        self.own_tokens = own if vocab == "both" and isinstance(self.skeleton, Softmax) else None
        """Number of tokens of the tokenizer, if the head may have rows for more; they are also reported alone."""
        self.columns = own if vocab == "tokenizer" else None
        """Number of tokens, from the first, that are columns; ``None`` for all tokens of the head. Only a softmax may
        have fewer than all."""
        targets = reading.targets
        self.targets = targets if 0 <= targets.max() < self.shape[1] else None
        self.description = {**model.about, "corpus": text and text.name, "split": text and text.split, **(about or {})}

    @cached_property
    def full_head(self) -> Head:
        """The head with its weights for all tokens, in `dtype`."""
        longest = self.reading.of([int(self.reading.lengths.argmax())]).inputs[:, 0]
        return self.model.head(longest[: len(self.reading.prefix) + SAMPLE])

    @cached_property
    def skeleton(self) -> Head:
        """The head for its sizes; its weights may not be loaded."""
        return self.model.skeleton

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the weights and the text, and all settings that change a number."""
        corpus = {"corpus": self.text.sha256} if self.text and self.text.sha256 else {}
        return {**self.model.identity, **corpus, **self._settings}

    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the hidden states of ascending ranges of contexts in the head's type, (n, hidden_size) each."""
        weight = self.full_head.weight  # the model is checked before it runs over the whole text
        return (self._states[rows.start : rows.stop].to(weight) for rows in ranges)

    @cached_property
    def _states(self) -> States | Tensor | Chosen:
        return self.model.states(self.reading)

    def windows(self) -> Iterator[Tensor]:
        """Yield the ids of each span that the model reads, including overlaps."""
        return (self.reading.of([number]).inputs[:, 0] for number in range(len(self.reading.starts)))

    @property
    def ids(self) -> NDArray[np.int64]:
        """All tokens up to the last target, (N,)."""
        assert self.text is not None
        return np.asarray(self.text.ids[: self.text.places[self.contexts - 1] + 1], dtype=np.int64)

    @property
    def longest_input(self) -> int:
        """Largest number of tokens that are read at once, without special tokens."""
        return 1 << 30 if self.model.is_recurrent else int(self.reading.lengths.max())

    def next_log_probs(self, histories: Ids) -> Callable[[Ids], NDArray[Any]]:
        """Return a function from a future to log P of the token after each of n histories with it, (n, M).

        The histories, (n, L), are read once by a recurrent model, and with each future by any other. The function
        raises `SourceError` for more tokens than a window holds.
        """

        def read(ids: Ids, state: Any) -> tuple[Tensor, Any]:
            inputs = torch.from_numpy(np.ascontiguousarray(ids.T, dtype=np.int64))
            return self.model.encode(Batch(inputs, inputs), state)

        hidden, state = read(histories, None) if self.model.is_recurrent else (torch.empty(0), None)

        def after(future: Ids) -> NDArray[Any]:
            futures = np.tile(future, (len(histories), 1))
            if self.model.is_recurrent:
                last = read(futures, state)[0] if len(future) else hidden
            else:
                if (count := histories.shape[1] + len(future)) > self.longest_input:
                    raise SourceError(
                        f"a history and a future have {count:,} tokens together, more than the "
                        f"{self.longest_input:,} that the model reads: give shorter ones"
                    )
                prefix = np.tile(self.reading.prefix, (len(histories), 1))
                last = read(np.concatenate([prefix, histories, futures], 1), None)[0]
            with full_precision():
                return as_array(self.head.log_prob(last[-1].to(self.head.weight)))

        return after

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

    @cached_property
    def bound(self) -> RankBound:  # type: ignore[override]
        """The algebraic bound on the rank of log P."""
        return self.model.bound(self.full_head)

    def rank_warning(self, eps: float) -> str:
        """Return why the hidden states do not belong to the head, or an empty string."""
        return self.model.mismatch

    def entry_warning(self) -> str:
        """Return the same as `rank_warning`."""
        return self.model.mismatch

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
        self.contexts, self.reading = contexts, self.reading.first(contexts)

    def scored(self) -> Self:
        """Return the contexts whose next token is known."""
        if self.targets is None or (known := self.targets >= 0).all():
            return self
        part = copy.copy(self)
        part.targets, part._states = self.targets[known], Chosen(self._states, np.flatnonzero(known))
        part.contexts, part.reading = len(part.targets), in_order(part.targets)
        part.text = self.text and self.text.scoring(self.text.places[: self.contexts][known])
        part.identity = {**self.identity, "scored": "only"}
        return part

    def without_padding(self) -> Self | None:
        """Return the renormalized matrix of the tokenizer's tokens, if the head has rows for more tokens."""
        if self.own_tokens is None or self.own_tokens >= self.shape[1]:
            return None
        _ = self._states  # which both share
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
        tokens = int(self.reading.lengths.sum()) + len(self.reading.prefix) * len(self.reading.starts)
        body = self.model.cost(tokens, contexts)
        return body._replace(operations=body.operations + 2.0 * contexts * columns * self.embedding_size)

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
