"""A stack of LSTM (long short-term memory) layers with dropout between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from ...core.checks import check_dropout, check_positive
from ...heads.layers import init_embeddings_
from .base import Backbone, State


@dataclass(frozen=True, kw_only=True)
class LSTMConfig:
    """Settings of `LSTM`."""

    embedding_size: int = 100
    """Size of the input embeddings; tied embeddings need the head's d."""
    hidden_size: int = 200
    """Size of every layer."""
    layers: int = 2
    """Number of layers."""
    dropout: float = 0.2
    """Probability of dropping a unit: on the embeddings, between the layers and on the output."""

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        check_positive(embedding_size=self.embedding_size, hidden_size=self.hidden_size)
        check_positive(layers=self.layers, at_most=1000)
        check_dropout(dropout=self.dropout)


@final
class LSTM(Backbone):
    """A language model's standard encoder (Zaremba et al. 2014), on torch's fused kernels.

    Example:
        >>> import torch
        >>> lstm = LSTM(LSTMConfig(embedding_size=4, hidden_size=6), vocab_size=10)
        >>> hidden, state = lstm(torch.zeros(5, 2, dtype=torch.long), lstm.initial_state(2))
        >>> hidden.shape
        torch.Size([5, 2, 6])
    """

    Config = LSTMConfig

    def __init__(self, config: LSTMConfig, *, vocab_size: int, all_layers: bool = False) -> None:
        super().__init__(config, vocab_size=vocab_size, all_layers=all_layers)
        self.layer_sizes = (config.hidden_size,) * (config.layers if all_layers else 1)
        self.hidden_size = sum(self.layer_sizes)
        self.embedding = nn.Embedding(vocab_size, config.embedding_size)
        init_embeddings_(self.embedding.weight)
        self.dropout = nn.Dropout(config.dropout)
        if len(self.layer_sizes) > 1:  # torch's stack of layers returns only the last layer's hidden states
            inputs = (config.embedding_size, *self.layer_sizes[:-1])
            self.layers = nn.ModuleList(nn.LSTM(size, config.hidden_size) for size in inputs)
        else:
            between = config.dropout if config.layers > 1 else 0.0
            self.lstm = nn.LSTM(config.embedding_size, config.hidden_size, config.layers, dropout=between)

    def initial_state(self, batch_size: int) -> State:
        """Return zeros: (layers, B, hidden_size), twice."""
        shape = (self.config.layers, batch_size, self.config.hidden_size)
        zeros = self.embedding.weight.new_zeros(shape)
        return zeros, torch.zeros_like(zeros)

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Encode a segment of text; see `Backbone.forward`."""
        inputs = self.dropout(self.embedding(ids))
        if len(self.layer_sizes) == 1:
            hidden, (h, c) = self.lstm(inputs, (state[0], state[1]))
            return self.dropout(hidden), (h, c)
        outputs, after = [], []
        for layer, before in zip(self.layers, zip(*(part.split(1) for part in state), strict=True), strict=True):
            hidden, new = layer(inputs, before)
            inputs = self.dropout(hidden)
            outputs.append(inputs)
            after.append(new)
        h, c = (torch.cat(parts) for parts in zip(*after, strict=True))
        return torch.cat(outputs, -1), (h, c)
