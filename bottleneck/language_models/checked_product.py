"""Check that an output layer computes W·h + b, before this is computed in full precision."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.full_precision import evaluating, full_precision
from ..errors import Parameter, SourceError

SAMPLE = 64
"""Number of contexts on which the recomputed logits must equal the layer's or the model's."""
ROUNDINGS = 4
"""Largest number of times that a product is rounded to the body's type: itself, the bias, and a margin for sums."""
THROUGH_A_FUNCTION = (
    "measure it through a function of ids (B, L), softmax_bottleneck.rank(lambda ids: model(ids).logits, data=batches)"
)
WITHOUT_LOGITS = (
    "measure a function of ids (B, L) that computes them from the hidden states, softmax_bottleneck.rank(lambda ids: "
    "body(ids) @ W.T, data=batches)"
)


def weight_of(layer: nn.Module, what: str) -> Tensor:
    """Return W, (M, d), as a plain tensor: one of torchao, or another quantized or sparse one, as the numbers it means.

    Raises:
        SourceError: for a tensor whose numbers are not all in this process, or that no method turns into numbers.
    """
    weight = cast(Tensor, layer.weight).detach()
    # A class without operations of its own only names the tensor.
    if type(weight) is not Tensor and type(weight).__torch_dispatch__ is Tensor.__torch_dispatch__:
        weight = weight.as_subclass(Tensor)
    for method in ("detach", "dequantize", "to_dense"):
        with suppress(Exception):  # packages raise anything for what they do not support
            plain = getattr(weight, method)()
            if type(plain) is Tensor and plain.is_floating_point() and plain.layout is torch.strided:
                return plain
    raise SourceError(
        f"W of {what} is a {type(weight).__name__} of {weight.dtype}, whose numbers cannot be read here: put a plain "
        "tensor in its place, which dequantize() makes of a quantized one, and full_tensor(), called on all processes, "
        "of a DTensor"
    )


def check_layer(layer: nn.Linear, states: Tensor, what: str) -> None:
    """Refuse a layer that does not compute W·h + b, as a subclass or a hook can make it.

    A copy in float32 or wider is applied, whose roundoff hides no soft cap, to `SAMPLE` of the states (n, d) and to the
    largest ones.
    """
    is_plain = type(layer.weight) is nn.Parameter and type(layer) is nn.Linear
    if is_plain and not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer)):
        return
    spread = torch.linspace(0, len(states) - 1, min(SAMPLE, len(states))).long().to(states.device)
    largest = states.norm(dim=1).topk(len(spread)).indices
    some = states[torch.cat([spread, largest])]
    try:
        applied = copy.deepcopy(layer).to(torch.promote_types(layer.weight.dtype, torch.float32))
        product = _applied(applied, some)
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):  # weights that a hook computes, or torchao's
        applied, product = layer, _applied(layer, some)
    weight, bias = weight_of(applied, what), applied.bias
    wide = torch.promote_types(weight.dtype, torch.float32)
    check_product(weight.to(wide), None if bias is None else bias.detach().to(wide), some, product, what)


def _applied(layer: nn.Linear, states: Tensor) -> Tensor:
    with evaluating(layer), full_precision():
        return cast(Tensor, layer(states.to(layer.weight.device, layer.weight.dtype)))


def check_product(weight: Tensor, bias: Tensor | None, hidden: Tensor, product: Tensor, what: str) -> Tensor:
    """Return W·h + b in full precision; refuse an output layer that computes something else.

    A product of d terms rounded to the body's type is off by at most eps Σ|h_i w_i|, whatever the order of its sum.
    """
    states = hidden.to(weight)
    with full_precision():
        exact = F.linear(states, weight, bias)
        size = F.linear(states.abs(), weight.abs(), None if bias is None else bias.abs())
    if not bool((exact < torch.inf).all()):
        raise SourceError(
            f"the logits of {what} are not finite: its weights are damaged, its training diverged, or its hidden "
            "states overflow in a type as narrow as float16; download the model again, or use ",
            Parameter("dtype", "float32"),
        )
    eps = max(torch.finfo(of.dtype).eps for of in (hidden, product, exact))
    off = distance(exact, product)
    if not bool((off <= ROUNDINGS * eps * size.clamp_(min=torch.finfo(torch.float32).tiny)).all()):
        raise SourceError(
            f"the output layer of {what} does not compute W·h + b: its output differs by up to {float(off.max()):.3g}, "
            f"more than rounding with eps = {eps:.2g} explains; {THROUGH_A_FUNCTION}"
        )
    return exact


def distance(ours: Tensor, theirs: Tensor) -> Tensor:
    """Return |ours − theirs|, zero if both are −∞ because the bias masks the token."""
    theirs = theirs.to(ours)
    return torch.where(theirs == ours, 0.0, (theirs - ours).abs())
