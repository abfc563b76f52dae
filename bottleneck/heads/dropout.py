"""Dropout that is drawn once for a whole segment of text."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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
