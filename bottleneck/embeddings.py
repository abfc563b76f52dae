"""How embeddings start, input and output alike, since the two are often one matrix."""

from __future__ import annotations

import math

from torch import Tensor, nn


def init_embeddings_(weight: Tensor) -> None:
    """Fill (M, d) embeddings uniformly in ±√(3/d), a variance of 1/d, in place.

    A context vector with entries near ±1 then gives logits of unit variance at any d. The code of AWD-LSTM, of the MoS
    paper and of Parthiban et al. 2021 takes ±0.1 at every d. That is nearly the same for their mixtures (±0.104 here at
    d = 280, ±0.1 at 300) and more than the ±0.087 here for their other heads, d = 400. At the small d of a laptop model
    ±0.1 would start the logits so flat that tanh contexts saturate before the embeddings have grown.
    """
    bound = math.sqrt(3 / weight.shape[1])
    nn.init.uniform_(weight, -bound, bound)
