"""From hidden states to context vectors and mixture weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..backbones.dropout import locked_dropout
from .checks import check_dropout, check_positive
from .scores import widest


class ContextVectors(nn.Module):
    """K context vectors of size d from one hidden state: ``h_k = tanh(W_k g + b_k)`` (MoS paper §2.4).

    In training, ``dropout`` of their entries are dropped, the same ones at every step of a sequence (MoS paper,
    table 8, "context vector V-dropout").

    Raises:
        ConfigurationError: for fewer than one component, or a dropout outside [0, 1).
    """

    def __init__(self, hidden_size: int, embedding_size: int, *, components: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive(components=components)
        check_dropout(context_dropout=dropout)
        self.components, self.embedding_size, self.dropout = components, embedding_size, dropout
        self.projection = nn.Linear(hidden_size, components * embedding_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (L, …, hidden_size), L steps of a sequence, to (L, …, K, d)."""
        vectors = torch.tanh(self.projection(hidden))
        vectors = locked_dropout(vectors, self.dropout, training=self.training)
        return vectors.unflatten(-1, (self.components, self.embedding_size))


class MixtureWeights(nn.Module):
    """Log mixture weights ``log π = log softmax(W_π g)``, without bias as in the original code."""

    def __init__(self, hidden_size: int, *, components: int) -> None:
        super().__init__()
        self.components = components
        self.projection = nn.Linear(hidden_size, components, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (…, hidden_size) to (…, K) in float32 or wider, each row's exponentials summing to one."""
        logits: Tensor = self.projection(hidden)
        return torch.log_softmax(logits, -1, dtype=widest(logits.dtype))


def single_context(hidden_size: int, embedding_size: int) -> ContextVectors | None:
    """Return the projection of a head with one context vector: none when the sizes agree."""
    return None if hidden_size == embedding_size else ContextVectors(hidden_size, embedding_size)
