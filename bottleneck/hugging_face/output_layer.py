"""The output layer of a Hugging Face model in full precision, checked against the model's own logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.full_precision import full_precision
from ..errors import SourceError
from ..heads import Softmax
from ..language_models.checked_product import THROUGH_A_FUNCTION, check_layer, check_product, distance
from ..language_models.on_text import masked_bias
from .loading import Sample

SCALES = ("logit_scale", "lm_head_multiplier", "logits_scaling")
"""Configuration keys of a factor on the logits (Cohere's, Falcon-H1's, HyperCLOVA X's) or of one they are divided by
(Granite's), or of one that comes before the output layer (MiniCPM's): the model's own logits tell."""
SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""Configuration keys of the largest logit c in c tanh(z / c): those of Gemma, RecurrentGemma and xLSTM."""

AFTERWARDS = 8
"""Largest number of times that a logit is rounded after the output layer, by a scale, a cap and its tanh, in both
computations."""


def full_precision_head(layer: nn.Linear, sample: Sample, config: Any, *, dtype: torch.dtype, what: str) -> Softmax:
    """Return the output layer as a head, with the configuration's scale and soft cap, checked on a sample of logits.

    Args:
        layer: the model's output layer.
        sample: the model's outputs for the first tokens of a text.
        config: the model's configuration.
        dtype: type of the measurement.
        what: name of the model.

    Raises:
        SourceError: when the model's logits are not numbers, or not those of this layer.
    """
    weight = layer.weight.detach().to(dtype)
    bias = None if layer.bias is None else layer.bias.detach().to(dtype)
    check_product(weight, bias, sample.hidden, sample.product, what)
    check_layer(layer, sample.hidden, what)
    if sample.logits.shape != sample.product.shape:
        raise SourceError(
            f"{what} keeps {sample.logits.shape[-1]:,} of the {sample.product.shape[-1]:,} logits of its output layer: "
            f"it cannot be taken apart; {THROUGH_A_FUNCTION}"
        )
    soft_cap, differences = soft_cap_of(config), []
    eps = max(torch.finfo(of.dtype).eps for of in (sample.probe, sample.logits))
    for scale in scales(config):
        ours = after_product(sample.probe, scale=scale, soft_cap=soft_cap)
        difference = distance(ours, sample.logits)
        if bool((difference <= AFTERWARDS * eps * ours.abs()).all()):
            kept = None if bias is None else masked_bias(bias, scale=scale)
            return Softmax.of(weight, kept, scale=scale, soft_cap=soft_cap)
        differences.append(float(difference.max()))
    raise SourceError(
        f"the logits of {what} are not those of its output layer as its configuration describes it: they differ by up "
        f"to {min(differences):.3g}, more than roundoff explains; {THROUGH_A_FUNCTION}"
    )


def after_product(product: Tensor, *, scale: float, soft_cap: float | None) -> Tensor:
    """Return the logits for a product W h + b, in its type."""
    logits = product * scale
    return logits if soft_cap is None else torch.tanh(logits / soft_cap) * soft_cap


def scales(config: Any) -> list[float]:
    """Return the possible factors on the output of the linear layer, from the configuration."""
    scale = 1.0
    for value in _values(config, SCALES):
        scale *= value
    return list(dict.fromkeys([scale, 1 / scale, 1.0]))


def soft_cap_of(config: Any) -> float | None:
    """Return the soft cap on the logits, from the configuration."""
    return next(iter(_values(config, SOFT_CAPS)), None)


def _values(config: Any, names: tuple[str, ...]) -> list[float]:
    values = (getattr(config.get_text_config(), name, None) for name in names)
    return [float(value) for value in values if isinstance(value, int | float) and value]


def logit_difference(head: Softmax, sample: Sample) -> float:
    """Return the largest difference between the head's logits of a sample and those of the model's own product."""
    weight = head.weight
    with full_precision():
        exact = F.linear(sample.hidden.to(weight), weight, head.bias)
    products = (exact, sample.product.to(weight))
    ours, theirs = (after_product(each, scale=head.scale, soft_cap=head.soft_cap) for each in products)
    if head.bias is not None:  # both mask the same tokens
        theirs = theirs.where(head.bias > -torch.inf, -torch.inf)
    return float(distance(ours, theirs).max())
