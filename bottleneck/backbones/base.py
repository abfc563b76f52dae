"""What every context encoder offers: token ids in, hidden states out, with a state that is carried along."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

State = tuple[Tensor, ...]
"""The recurrent state after the last token: tensors whose second dimension is the batch."""


class Encoding(NamedTuple):
    """A stretch of text, encoded for training."""

    hidden: Tensor
    """(L, B, hidden_size)."""
    state: State
    """After the last token."""
    penalty: Tensor | None
    """What the encoder's own regularization adds to a training loss, a scalar; ``None`` for nothing."""


class Backbone(nn.Module, ABC):
    """A causal encoder of contexts. Subclasses are final and hold their input embeddings as ``embedding``.

    Args:
        config: its settings, a `Config`.
        vocab_size: M.
        all_layers: whether hidden states are those of all layers side by side, the first layer first.
    """

    Config: ClassVar[type[Any]]
    """A dataclass of the settings; configuration files take names, types and defaults from there."""
    embedding: nn.Embedding
    hidden_size: int
    """Size of the hidden states that come out: the last layer's, or the sum of all layers'."""
    layer_sizes: tuple[int, ...]
    """Sizes of the layers in them, the first layer first."""

    def __init__(self, config: Any, *, vocab_size: int, all_layers: bool = False) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """Return the state before the first token, on the backbone's device and in its dtype."""

    @abstractmethod
    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Encode a stretch of L tokens of B parallel texts, int64 (L, B), given the state after the stretch before.

        Return the hidden states (L, B, hidden_size), and the state after the last token.
        """

    def encode(self, ids: Tensor, state: State) -> Encoding:
        """Encode a stretch of text like `forward`, and say what it adds to a training loss."""
        hidden, after = self(ids, state)
        return Encoding(hidden, after, None)
