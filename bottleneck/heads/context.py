"""From hidden states to context vectors and mixture weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ContextVectors(nn.Module):
    """K context vectors of size d from one hidden state: ``h_k = tanh(W_k g + b_k)`` (MoS paper §2.4)."""

    def __init__(self, hidden_size: int, embedding_size: int, *, components: int = 1) -> None:
        super().__init__()
        self.components, self.embedding_size = components, embedding_size
        self.projection = nn.Linear(hidden_size, components * embedding_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (…, hidden_size) to (…, K, d)."""
        vectors = torch.tanh(self.projection(hidden))
        return vectors.unflatten(-1, (self.components, self.embedding_size))


class MixtureWeights(nn.Module):
    """Log mixture weights ``log π = log softmax(W_π g)``, without bias as in the original code."""

    def __init__(self, hidden_size: int, *, components: int) -> None:
        super().__init__()
        self.projection = nn.Linear(hidden_size, components, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (…, hidden_size) to (…, K), each row's exponentials summing to one."""
        return torch.log_softmax(self.projection(hidden), -1)


def single_context(hidden_size: int, embedding_size: int) -> ContextVectors | None:
    """Return the projection of a head with one context vector: none when the sizes agree."""
    return None if hidden_size == embedding_size else ContextVectors(hidden_size, embedding_size)
