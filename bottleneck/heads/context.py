"""Layers that map hidden states to context vectors and to mixture weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core.checks import check_dropout, check_positive
from ..errors import ConfigurationError
from .dropout import locked_dropout
from .scores import widest


class ContextVectors(nn.Module):
    """K context vectors of size d from one hidden state: ``h_k = tanh(W_k g + b_k)`` (Yang et al. 2018, §2.4).

    Args:
        hidden_size: size of g.
        embedding_size: d.
        components: K, the number of context vectors; 15 as in the language models of Yang et al. 2018.
        context_dropout: probability of dropping an entry of a context vector in training, the same entries at every
            step of a sequence (Yang et al. 2018, table 8, "context vector V-dropout"); 0 drops none.
        residual: ``h_k = g + W_k g + b_k`` instead, where W_k and b_k start at 0, so that every h_k starts as g.
        context_rank: r, the size of a layer between g and all W_k, which makes them ``U_k V`` with one V
            (r, hidden_size); ``None`` for full rank.

    Raises:
        ConfigurationError: for fewer than one component or a rank below one, a dropout outside [0, 1), or residual
            context vectors of another size than the hidden states.
    """

    def __init__(
        self,
        hidden_size: int,
        embedding_size: int,
        *,
        components: int = 1,
        context_dropout: float = 0.0,
        residual: bool = False,
        context_rank: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(components=components, context_rank=context_rank)
        check_dropout(context_dropout=context_dropout)
        if residual and hidden_size != embedding_size:
            raise ConfigurationError(
                f"residual context vectors have the size of the hidden states, {hidden_size}, not {embedding_size}: "
                "leave embedding_size out, or set residual=false"
            )
        self.components, self.embedding_size, self.context_dropout = components, embedding_size, context_dropout
        self.residual = residual
        self.reduction = None if context_rank is None else nn.Linear(hidden_size, context_rank, bias=False)
        self.projection = nn.Linear(context_rank or hidden_size, components * embedding_size)
        if residual:
            nn.init.zeros_(self.projection.weight)
            nn.init.zeros_(self.projection.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (L, …, hidden_size), L steps of a sequence, to (L, …, K, d)."""
        vectors = self.projection(hidden if self.reduction is None else self.reduction(hidden))
        vectors = torch.tile(hidden, (self.components,)) + vectors if self.residual else torch.tanh(vectors)
        vectors = locked_dropout(vectors, self.context_dropout, training=self.training)
        return vectors.unflatten(-1, (self.components, self.embedding_size))


class MixtureWeights(nn.Module):
    """Log mixture weights ``log π = log softmax(W_π g)``, without bias as in the code of Yang et al. 2018."""

    def __init__(self, hidden_size: int, *, components: int) -> None:
        super().__init__()
        self.components = components
        self.projection = nn.Linear(hidden_size, components, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (…, hidden_size) to (…, K) in float32 or wider, each row's exponentials summing to one."""
        logits: Tensor = self.projection(hidden)
        return torch.log_softmax(logits, -1, dtype=widest(logits.dtype))


def single_context(hidden_size: int, embedding_size: int) -> ContextVectors | None:
    """Return the projection of a head with one context vector, or ``None`` when the sizes agree."""
    return None if hidden_size == embedding_size else ContextVectors(hidden_size, embedding_size)
