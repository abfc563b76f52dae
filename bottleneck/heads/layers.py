"""Layers that heads and backbones share: context vectors and mixture weights, initial embeddings, and dropout."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.checks import check_dropout, check_positive, typed
from ..errors import ConfigurationError
from .scores import widest


class ContextVectors(nn.Module):
    """K context vectors of size d from one hidden state: ``h_k = tanh(W_k g + b_k)`` (Yang et al. 2018, §2.4).

    Args:
        components: K, the number of context vectors, 15 in the language models of Yang et al. 2018; ``None`` for one
            softmax.
        context_dropout: probability of dropping an entry of a context vector in training, the same entries at every
            step of a sequence (Yang et al. 2018, table 8, "context vector V-dropout"); 0 drops none. Steps are the
            first dimension of the hidden states, (L, …, hidden_size).
        residual: whether context vectors are ``h_k = g + W_k g + b_k`` instead, where W_k and b_k start at 0. All
            components then start as one softmax over the hidden states, which keeps a trained model's predictions; the
            prior, which starts at random, gives them different gradients.
        context_rank: r, the size of a layer between g and all W_k, which makes them ``U_k V`` with one V
            (r, hidden_size); ``None`` for full rank.

    Raises:
        ConfigurationError: for fewer than one component or a rank below one, a dropout outside [0, 1), or residual
            context vectors of another size than the hidden states.
    """

    @typed
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


def init_embeddings_(weight: Tensor) -> None:
    """Fill (M, d) embeddings uniformly in ±√(3/d), a variance of 1/d, in place.

    A context vector with entries near ±1 then gives logits of unit variance at any d. The code of AWD-LSTM, Yang et al.
    2018 and Parthiban et al. 2021 uses ±0.1 at every d. That is nearly the same for their mixtures (here ±0.104 at
    d = 280, ±0.1 at 300) and more than for their other heads (here ±0.087 at d = 400). At a small d, ±0.1 gives initial
    logits so small that the tanh of the context vectors saturates before the embeddings have grown.
    """
    bound = math.sqrt(3 / weight.shape[1])
    nn.init.uniform_(weight, -bound, bound)


def locked_dropout(sequence: Tensor, probability: float, *, training: bool) -> Tensor:
    """Drop the same units at every step of a sequence (Gal and Ghahramani 2016, variational dropout).

    Each of the (…) units of a sequence (L, …) is dropped at all L steps, or scaled by 1 / (1 − p) at all.
    """
    if not training or not probability:
        return sequence
    return sequence * F.dropout(torch.ones_like(sequence[:1]), probability)


def drop_words(embedding: nn.Embedding, ids: Tensor, probability: float, *, training: bool) -> Tensor:
    """Return embeddings of ids, (…) → (…, d), with whole words dropped wherever they occur (Merity et al. 2018, §4.3).

    The other words are scaled by 1 / (1 − p).
    """
    vectors: Tensor = embedding(ids)
    if not training or not probability:
        return vectors
    weight = embedding.weight
    scales = F.dropout(torch.ones(len(weight), dtype=weight.dtype, device=weight.device), probability)
    return vectors * scales[ids].unsqueeze(-1)


def drop_weights(layer: nn.LSTM, probability: float) -> list[Tensor]:
    """Return a one-layer LSTM's weights with some of its hidden-to-hidden ones dropped (DropConnect, Wan et al. 2013).

    They are the input-to-hidden matrix, the hidden-to-hidden matrix, whose other weights are scaled by 1 / (1 − p), and
    the two biases. Gradients flow back to the layer's parameters, which are not changed.
    """
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights: list[Tensor] = [layer.get_parameter(name) for name in names]
    weights[1] = weights[1] * _stays(weights[1], probability).to(weights[1].dtype).div_(1 - probability)
    return in_one_piece(weights) if weights[1].is_cuda else weights


def _stays(matrix: Tensor, probability: float) -> Tensor:
    """Return a random mask, bool, of the entries that are kept.

    One 64-bit random number decides two entries, which on a CPU is faster than torch's own dropout. The ``probability``
    of dropping an entry is rounded to a multiple of 2⁻³².
    """
    bits = torch.empty(matrix.numel() // 2 + 1, dtype=torch.int64, device=matrix.device).random_(-(2**63), None)
    least = min(round(probability * 2**32) - 2**31, 2**31 - 1)
    return (bits.view(torch.int32)[: matrix.numel()] >= least).view_as(matrix)


def in_one_piece(weights: list[Tensor]) -> list[Tensor]:
    """Return the weights in one contiguous buffer, as cuDNN requires; otherwise its kernels warn and copy them."""
    pieces = torch.cat([weight.flatten() for weight in weights]).split([weight.numel() for weight in weights])
    return [piece.view(weight.shape) for piece, weight in zip(pieces, weights, strict=True)]
