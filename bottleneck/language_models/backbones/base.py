"""What every context encoder offers: token ids in, hidden states out, with a state that is carried along."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from ...errors import ConfigurationError

State = tuple[Tensor, ...]
"""The recurrent state after the last token: tensors whose second dimension is the batch."""


class Encoding(NamedTuple):
    """A segment of text, encoded for training."""

    hidden: Tensor
    """(L, B, hidden_size)."""
    state: State
    """Recurrent state after the last token."""
    penalty: Tensor | None
    """The encoder's own regularization, a scalar to add to the training loss; ``None`` for nothing."""


class Backbone(nn.Module, ABC):
    """A causal encoder of contexts. Subclasses are final and hold their input embeddings as ``embedding``.

    Args:
        config: settings, an instance of ``Config``.
        vocab_size: M.
        all_layers: whether hidden states are those of all layers, concatenated, the first layer first.
    """

    Config: ClassVar[type[Any]]
    """A dataclass of the settings; configuration files take names, types and defaults from there."""
    embedding: nn.Embedding
    hidden_size: int
    """Size of the hidden states that `forward` returns: that of the last layer, or the sum over all layers."""
    layer_sizes: tuple[int, ...]
    """Sizes of the layers in these hidden states, the first layer first."""

    def __init__(self, config: Any, *, vocab_size: int, all_layers: bool = False) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """Return the state before the first token, on the backbone's device and in its dtype."""

    @abstractmethod
    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Encode a segment of L tokens of B parallel texts, int64 (L, B), given the state after the segment before.

        Return the hidden states (L, B, hidden_size), and the state after the last token.
        """

    @property
    def context_lines(self) -> int | None:
        """The largest number of lines before a line that it answers; ``None`` if it reads a text as one stream."""
        lines: int | None = getattr(self.config, "context_lines", None)
        return lines

    def read(self, contexts: Tensor) -> State:
        """Return the state before the first token of B texts that answer contexts, (W, N, B); see `reading.Batch`."""
        raise ConfigurationError(f"{type(self).__name__} reads a text as one stream, without contexts")

    def encode(self, ids: Tensor, state: State) -> Encoding:
        """Encode a segment of text like `forward`, with the penalty that is added to a training loss."""
        hidden, after = self(ids, state)
        return Encoding(hidden, after, None)
