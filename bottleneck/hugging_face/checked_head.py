"""What a Hugging Face model's logits are made of, as a head in full precision: its linear layer, or its own head."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import heads
from ..core.full_precision import full_precision
from ..errors import SourceError
from ..heads import Head, Softmax
from . import loading
from .output import OutputLayer
from .output_layer import full_precision_head, logit_difference, scales, soft_cap_of


@dataclass(frozen=True)
class CheckedHead:
    """A head, and what a sample of contexts says of it."""

    head: Head
    hidden: Tensor
    """(L, hidden_size), what the head is given for the sample."""
    difference: float
    """The largest difference between its logits, or log-probabilities, and the model's own."""


def unloaded_head(model: Any, name: str, *, dtype: torch.dtype) -> Head:
    """Return the head for its sizes, without weights.

    Args:
        model: the model; its weights may not be loaded.
        name: name of the model, for errors.
        dtype: type of the measurement.

    Raises:
        SourceError: for a model whose output layer is neither linear nor a head.
    """
    layer = loading.output_layer(model, name)
    if isinstance(layer, OutputLayer):
        with torch.device("meta"):
            return heads.build(model.spec.head, **model.spec.settings).to(dtype).eval()
    tensors = (layer.weight, layer.bias)
    weight, bias = (None if t is None else torch.empty_like(t, device="meta", dtype=dtype) for t in tensors)
    assert weight is not None
    return Softmax.of(weight, bias, scale=scales(model.config)[0], soft_cap=soft_cap_of(model.config))


def checked_head(model: Any, name: str, ids: Tensor, *, dtype: torch.dtype) -> CheckedHead:
    """Return the head with its weights, after a check that it makes the model's own logits.

    Args:
        model: the model with its weights.
        name: name of the model, for errors.
        ids: int64, (L,), the sample.
        dtype: type of the measurement.

    Raises:
        SourceError: for logits that are not numbers, or not those of the output layer.
    """
    layer = loading.output_layer(model, name)
    if not isinstance(layer, OutputLayer):
        sample = loading.sample(model, layer, ids)
        softmax = full_precision_head(layer, sample, model.config, dtype=dtype, what=name)
        return CheckedHead(softmax, sample.hidden, logit_difference(softmax, sample))
    hidden = loading.hidden_of(model, ids)
    head: Head = deepcopy(layer.head).to(dtype).eval().requires_grad_(False)
    with torch.no_grad(), full_precision():
        exact, computed = head.log_prob(hidden.to(dtype)), layer.head.log_prob(hidden).to(dtype)
    if bool(exact.isnan().any()):
        raise SourceError(f"the log-probabilities of {name} are not numbers: its weights are damaged; train it again")
    return CheckedHead(head, hidden, float(torch.where(exact == computed, 0.0, (exact - computed).abs()).max()))
