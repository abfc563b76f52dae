"""Which models of transformers can be given another head; all others are refused before any training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import is_parametrized

from ..errors import ConfigurationError
from . import loading
from .headed import IGNORED, router_loss
from .output import OutputLayer

PROBE = 8
"""Tokens on which the model is run before its output layer is replaced."""
LOSS_DIFFERENCE = 1e-3
"""Largest relative difference of the model's own loss from the cross entropy of the next token, in any precision."""


def replaceable_layer(model: Any) -> tuple[str, nn.Linear]:
    """Return the name of a model's output layer, and the layer.

    Raises:
        ConfigurationError: for a model that is not what transformers has for causal language models, one that is
            compiled, quantized, adapted or given another forward pass, and an output layer that cannot be replaced.
        SourceError: for an output layer that is not one linear layer.
    """
    _check_model(model)
    kind = type(model).__name__
    layer = loading.output_layer(model, kind)
    assert isinstance(layer, nn.Linear)
    name = next(key for key, module in model.named_modules() if module is layer)
    if "." in name:
        raise ConfigurationError(
            f"the output layer of {kind} is {name}, inside another module: only a layer of the model itself can be "
            "replaced"
        )
    if name == "head":
        raise ConfigurationError(
            f"the output layer of {kind} is named head, and model.head would be the new head as well: this model keeps "
            "its own"
        )
    if is_parametrized(layer):
        raise ConfigurationError(
            f"the weight of {name} is computed from others (torch.nn.utils.parametrize, such as weight_norm): remove "
            "the parametrization first"
        )
    if layer.weight.is_meta:
        raise ConfigurationError(f"{name} has no weights on a device (meta): load the model without offloading")
    return name, layer


def probe_ids(model: Any, layer: nn.Linear) -> Tensor:
    """Return a few token ids (L,) that the model can be run on."""
    config = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None)
    length = min(PROBE, longest) if isinstance(longest, int) and longest > 1 else PROBE
    return torch.arange(length, device=next(model.parameters()).device) % layer.out_features


def check_loss(model: Any, layer: nn.Linear, ids: Tensor) -> None:
    """Refuse a model whose loss is not the mean cross entropy of the next token, which a head's loss is.

    The output layer is replaced by logits that depend strongly on context and token, so that any other loss shows.

    Args:
        model: the model.
        layer: its output layer.
        ids: token ids (L,).
    """
    labels = (5 * ids + 3) % layer.out_features
    outputs = loading.with_spread_logits(model, layer, ids, labels=labels)
    targets = F.pad(labels, (0, 1), value=IGNORED)[1:]
    expected = F.cross_entropy(outputs.logits[0].double(), targets, ignore_index=IGNORED)
    if (balance := router_loss(model, outputs)) is not None:
        expected = expected + balance.double()
    if not torch.isclose(outputs.loss.double(), expected, rtol=LOSS_DIFFERENCE, atol=0.0):
        raise ConfigurationError(
            f"the loss of {type(model).__name__} is {outputs.loss:.4g}, and the cross entropy of the next token is "
            f"{expected:.4g}: it does not shift the labels, or it adds a term, so the loss of a head would be another"
        )


def _check_model(model: Any) -> None:
    kind = type(model).__name__
    if hasattr(model, "_orig_mod"):
        raise ConfigurationError(
            f"the {type(model._orig_mod).__name__} is compiled: give with_head the model before that"
        )
    if not hasattr(model, "get_output_embeddings") or not hasattr(model, "save_pretrained"):
        raise ConfigurationError(
            f"a {kind} is no causal language model of transformers; in a plain module, replace the layer that makes "
            "the logits: module.lm_head = softmax_bottleneck.integrations.transformers.output_layer(module.lm_head, …)"
        )
    if getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None) is not None:
        raise ConfigurationError(
            f"{kind} is quantized, and a head trains the embeddings in floating point: load the model without "
            "quantization, in bfloat16 or float32"
        )
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ConfigurationError(
            f"{kind} has an adapter, and only that would be saved: merge it first, or give with_head the model without "
            "it, and the result to peft.get_peft_model with modules_to_save=[the name of the output layer]"
        )
    if "forward" in model.__dict__ or "_loss_function" in model.__dict__:
        what = "forward pass" if "forward" in model.__dict__ else "loss function"
        raise ConfigurationError(
            f"this {kind} was given another {what} (by accelerate, a device_map with offloading, or by hand), which a "
            "head would not use: give with_head the model before that"
        )
    if isinstance(model.get_output_embeddings(), OutputLayer):
        raise ConfigurationError(f"this {kind} has a head already: give with_head the model without it")
    if type(model) not in (classes := _classes(model.config)):
        names = ", ".join(each.__name__ for each in classes) or "none"
        raise ConfigurationError(
            f"a {kind} is not the causal language model that transformers has for its configuration ({names}), and its "
            "folder could not be loaded: give an instance of that class"
        )


def _classes(config: Any) -> list[type]:
    """Return the causal language models that transformers has for a configuration."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if getattr(config, "is_encoder_decoder", False) or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return []
    classes: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return [*classes] if isinstance(classes, tuple) else [classes]
