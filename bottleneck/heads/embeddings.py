"""Initialization of input and output embeddings, which are often one matrix."""

from __future__ import annotations

import math

from torch import Tensor, nn


def init_embeddings_(weight: Tensor) -> None:
    """Fill (M, d) embeddings uniformly in ±√(3/d), a variance of 1/d, in place.

    A context vector with entries near ±1 then gives logits of unit variance at any d. The code of AWD-LSTM, Yang et al.
    2018 and Parthiban et al. 2021 uses ±0.1 at every d. That is nearly the same for their mixtures (here ±0.104 at
    d = 280, ±0.1 at 300) and more than for their other heads (here ±0.087 at d = 400). At a small d, ±0.1 gives initial
    logits so small that the tanh of the context vectors saturates before the embeddings have grown.
    """
    bound = math.sqrt(3 / weight.shape[1])
    nn.init.uniform_(weight, -bound, bound)
