"""How embeddings start, input and output alike, since the two are often one matrix."""

from __future__ import annotations

import math

from torch import Tensor, nn


def init_embeddings_(weight: Tensor) -> None:
    """Fill (M, d) embeddings uniformly in ±√(3/d), a variance of 1/d, in place.

    A context vector with entries near ±1 then gives logits of unit variance at any d. At the papers' sizes this
    is the ±0.1 they use (±0.103 at d = 280); at the small d of a laptop model ±0.1 would start the logits so
    flat that tanh contexts saturate before the embeddings have grown.
    """
    bound = math.sqrt(3 / weight.shape[1])
    nn.init.uniform_(weight, -bound, bound)
