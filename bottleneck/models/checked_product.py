"""Check that an output layer is the product with its weight, plus its bias, before the product is computed anew."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import SourceError
from ..full_precision import full_precision

SAMPLE = 64
"""Number of contexts on which the recomputed logits must equal the layer's or the model's."""
ROUNDINGS = 4
"""Largest number of times that a product is rounded to the body's type: itself, the bias, and a margin for sums."""
THROUGH_A_FUNCTION = "measure it through a function, softmax_bottleneck.rank(f, data=…)"


def check_product(weight: Tensor, bias: Tensor | None, hidden: Tensor, product: Tensor, what: str) -> None:
    """Refuse an output layer that is not a product with its weight, plus its bias.

    A product of d terms rounded to the body's type is off by at most eps Σ|h_i w_i|, whatever the order of its sum.
    """
    states = hidden.to(weight)
    with full_precision():
        exact = F.linear(states, weight, bias)
        size = F.linear(states.abs(), weight.abs(), None if bias is None else bias.abs())
    if not bool((exact < torch.inf).all()):
        raise SourceError(
            f"the logits of {what} are not finite: its weights are damaged, or its hidden states overflow in a type as "
            "narrow as float16; download the model again, or use --dtype float32"
        )
    eps = max(torch.finfo(of.dtype).eps for of in (hidden, product, exact))
    off = distance(exact, product)
    if not bool((off <= ROUNDINGS * eps * size.clamp_(min=torch.finfo(torch.float32).tiny)).all()):
        raise SourceError(
            f"the output layer of {what} is no product with its weight: its output differs from the product by up to "
            f"{float(off.max()):.3g}, more than rounding with eps = {eps:.2g} explains; {THROUGH_A_FUNCTION}"
        )


def distance(ours: Tensor, theirs: Tensor) -> Tensor:
    """Return |ours − theirs|, zero if both are −∞ because the bias masks the token."""
    theirs = theirs.to(ours)
    return torch.where(theirs == ours, 0.0, (theirs - ours).abs())
