"""The log-probabilities of a language model on a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import SourceError
from ..full_precision import full_precision
from ..heads import Head, Softmax
from ..heads.base import RankBound
from ..heads.scores import Factors
from ..models import ModelOnText
from ..spectrum import Precision, precision
from .base import Block, FactorRows, Source, Work


@final
class ModelSource(Source):
    """The log-probabilities that a head computes from the hidden states of a text's contexts.

    Args:
        model: a model on a text; its weights are loaded when they are needed.
        columns: number of tokens, from the first of the vocabulary, that are columns; by default the model's. Only a
            softmax may have fewer than all.
    """

    def __init__(self, model: ModelOnText, *, columns: int | None = None) -> None:
        self.model = model
        skeleton = model.skeleton
        self.shape = (model.contexts, min(columns or model.columns or skeleton.vocab_size, skeleton.vocab_size))
        self.embedding_size = skeleton.embedding_size
        self.dtype, self.targets, self.text = model.dtype, model.targets, model.text
        self.description = model.description
        self._factor_columns = _factor_columns(skeleton)

    @property
    def precision(self) -> Precision:
        """The precision of the head; roundoff of the hidden states is part of the matrix."""
        return precision(self.dtype)

    @cached_property
    def bound(self) -> RankBound:  # type: ignore[override]
        """The algebraic bound on the rank of log P."""
        return self.model.rank_bound

    @property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the model and the text."""
        return self.model.identity

    @cached_property
    def head(self) -> Head:
        """The head, restricted to the tokens that are columns."""
        head = self.model.head
        if self.shape[1] == head.vocab_size:
            return head
        if not isinstance(head, Softmax):
            raise SourceError(f"{self.description['path']}: columns can be left out of a softmax's matrix only")
        bias = None if head.bias is None else head.bias[: self.shape[1]].detach()
        weight = head.weight[: self.shape[1]].detach()
        return Softmax.of(weight, bias, scale=head.scale, soft_cap=head.soft_cap)

    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the hidden states of ascending ranges of contexts in the head's type, (n, hidden_size) each."""
        for hidden in self.model.hidden(ranges):
            yield hidden.to(self.head.weight)

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
        asked = self.ranges() if ranges is None else list(ranges)
        for rows, hidden in zip(asked, self.hidden(asked), strict=True):
            with full_precision():
                log_probs = self.head.log_prob(hidden).cpu().numpy()
            yield Block(rows.start, log_probs)

    def factors(self) -> FactorRows | None:
        """Return X = [H, 1, −log Z] and Y = [W, b, 1] of a log-linear head; log Z is streamed."""
        if self._factor_columns is None:
            return None
        (hidden,) = self.hidden([range(1)])
        factors = self.linear(hidden)
        assert factors is not None
        _, weight, bias = factors
        columns = [weight, *([] if bias is None else [bias.unsqueeze(1)]), torch.ones_like(weight[:, :1])]
        return FactorRows(self._left, torch.cat(columns, 1).detach().cpu().double().numpy())

    def _left(self, ranges: Iterable[range]) -> Iterator[NDArray[np.float64]]:
        for hidden in self.hidden(ranges):
            with full_precision():
                factors = self.linear(hidden)
                assert factors is not None
                contexts, weight, bias = factors
                log_partitions = log_partition(torch.nn.functional.linear(contexts, weight, bias))
                beside = [] if bias is None else [torch.ones_like(log_partitions)]
                rows = torch.cat([contexts, *beside, -log_partitions], 1)
            yield rows.cpu().double().numpy()

    def work(self) -> Work:
        """Return the cost of the model and of the product with W; no weights are loaded."""
        cost = self.model.cost
        product = 2.0 * self.shape[0] * self.shape[1] * (self.embedding_size or 0)
        return Work(cost.operations + product, cost.memory_bytes, self._factor_columns)

    def variants(self) -> Mapping[str, Source]:
        """Return the renormalized matrix of the tokenizer's tokens, if the head has rows for more tokens."""
        tokens = self.model.own_tokens
        if tokens is None or tokens >= self.shape[1]:
            return {}
        return {"vocab_tokenizer": ModelSource(self.model, columns=tokens)}

    def rows_at_once(self) -> int:
        """Return the number of rows in one block."""
        return min(self.shape[0], max(self.model.least_rows, super().rows_at_once()))


def _factor_columns(head: Head) -> int | None:
    """Return the number of columns of X and Y for a log-linear head, whose weights may be on the meta device."""
    hidden = torch.zeros(1, head.hidden_size, device=head.weight.device, dtype=head.weight.dtype)
    with full_precision():
        factors = head.scores(hidden).linear
    return None if factors is None else factors.weight.shape[1] + 1 + int(factors.bias is not None)


def log_partition(logits: Tensor) -> Tensor:
    """Return log Z of each row, (n, 1)."""
    # The fused kernel of log_softmax gives log Z as z − (z − log Z) of one column, in half the passes of a logsumexp.
    # The column is the likeliest token of one context, because any other may be masked.
    column = logits[:1].argmax(1)
    return logits[:, column] - torch.log_softmax(logits, 1)[:, column]
