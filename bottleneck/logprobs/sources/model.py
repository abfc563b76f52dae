"""A model: hidden states for the contexts of a text, and an output layer on top of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...full_precision import full_precision
from ...heads.scores import Factors
from ..base import Block, FactorRows, Source


class OutputLayer(Protocol):
    """What turns hidden states into log-probabilities: every `Head`, and the output layer of a Hugging Face model."""

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return log P, differentiably: (n, hidden_size) → (n, M)."""


class LogLinearLayer(OutputLayer, Protocol):
    """An output layer whose logits are linear in d context directions."""

    def factors(self, hidden: Tensor) -> Factors:
        """Return H, W and b of logits H Wᵀ + b."""


class ModelSource(Source):
    """Log-probabilities that an output layer makes of hidden states. Subclasses say where those come from."""

    @property
    @abstractmethod
    def layer(self) -> OutputLayer:
        """The output layer."""

    @property
    @abstractmethod
    def log_linear(self) -> LogLinearLayer | None:
        """The output layer, if its logits are linear in d context directions."""

    @abstractmethod
    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the hidden states of ascending ranges of contexts, (n, hidden_size) each."""

    def blocks(self, ranges: Iterable[range] | None = None) -> Iterator[Block]:
        """Yield log P of ascending ranges of contexts; see `Source.blocks`."""
        asked = self.ranges() if ranges is None else list(ranges)
        for rows, hidden in zip(asked, self.hidden(asked), strict=True):
            with full_precision():
                log_probs = self.layer.log_prob(hidden).cpu().numpy()
            yield Block(rows.start, log_probs)

    def factors(self) -> FactorRows | None:
        """Return X = [H, 1, −log Z] and Y = [W, b, 1] for a log-linear layer; log Z is streamed."""
        layer = self.log_linear
        if layer is None:
            return None
        (hidden,) = self.hidden([range(1)])
        with full_precision():
            _, weight, bias = layer.factors(hidden)
        columns = [weight, *([] if bias is None else [bias.unsqueeze(1)]), torch.ones_like(weight[:, :1])]
        right = torch.cat(columns, 1).detach().cpu().double().numpy()
        return FactorRows(lambda ranges: self._left(layer, ranges), right)

    def _left(self, layer: LogLinearLayer, ranges: Iterable[range]) -> Iterator[NDArray[np.float64]]:
        for hidden in self.hidden(ranges):
            with full_precision():
                contexts, weight, bias = layer.factors(hidden)
                log_partitions = log_partition(torch.nn.functional.linear(contexts, weight, bias))
                beside = [] if bias is None else [torch.ones_like(log_partitions)]
                rows = torch.cat([contexts, *beside, -log_partitions], 1)
            yield rows.cpu().double().numpy()


def log_partition(logits: Tensor) -> Tensor:
    """Return log Z of each row, (n, 1)."""
    # From the fused kernel of a forward pass: z − (z − log Z) of one column, in half the passes of a logsumexp. It is
    # the likeliest token of one context, as any other may be masked.
    column = logits[:1].argmax(1)
    return logits[:, column] - torch.log_softmax(logits, 1)[:, column]
