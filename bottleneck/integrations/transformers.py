"""Replace the output layer of a model of the package transformers, or of a plain module."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .. import heads
from ..core.devices import exact
from ..core.version import __version__
from ..corpora.batches import IGNORED
from ..errors import ConfigurationError, SourceError
from ..heads import Head
from ..hugging_face import folder, loading
from ..hugging_face.checks import Sample, sample, softmax_of
from ..hugging_face.headed import (
    FORMAT,
    HeadSpec,
    OutputLayer,
    WithheldStates,
    headed_class,
    put_head,
    router_loss,
    share_weights,
)

if find_spec("transformers"):
    from ..hugging_face import auto  # noqa: F401 (teaches the Auto classes of transformers to load heads)

NOT_OPTIONS = ("output_loading_info", "subfolder", "variant", "use_safetensors", "trust_remote_code")
"""Arguments of ``from_pretrained`` of transformers that are not taken."""
PROBE = 8
"""Tokens on which the model is run before its output layer is replaced."""
LOSS_DIFFERENCE = 1e-3
"""Largest relative difference of the model's own loss from the cross entropy of the next token, in any precision."""


def with_head(model: Any, name: str, **settings: Any) -> Any:
    """Return a causal language model of transformers with another head; both models share all other weights.

    The head takes over the output embeddings, tied or not, and the output bias. Where it can, it starts as the model's
    own softmax, so that the loss before the first step is the model's (mos, lms-plif and softmax; see
    `Head.as_softmax`). A logit scale is kept; a soft cap is kept by the head ``"softmax"``.

    ``forward(input_ids, labels=…)`` returns the exact loss, made block by block, and logits only without labels or
    with ``return_logits=True``; these are log-probabilities. ``generate``, ``Trainer``, gradient checkpointing and
    ``save_pretrained`` work as before; `from_pretrained` loads the folder.

    Args:
        model: a model with an ``nn.Linear`` as its output layer, such as ``AutoModelForCausalLM`` returns.
        name: a registered head: ``"mos"``, ``"lms-plif"``, ….
        settings: settings of the head, such as ``components=4``.

    Raises:
        ConfigurationError: for an unknown head or setting, sizes that do not fit the model, a soft cap that the head
            would lose, a loss that is not the cross entropy of the next token, and a model that is not one of
            transformers' causal language models as it was made (compiled, quantized, adapted, offloaded).
        SourceError: for a model whose output layer is not one linear layer, or does not make its logits.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2)).eval()
        >>> model = with_head(gpt2, "mos", components=4)
        >>> ids = torch.arange(12).view(1, 12)
        >>> torch.allclose(model(ids, labels=ids).loss, gpt2(ids, labels=ids).loss)
        True
    """
    layer_name, layer = _replaceable_layer(model)
    softmax = _softmax(model, layer)
    if softmax.soft_cap is not None:
        if name != "softmax":
            raise ConfigurationError(
                f"{type(model).__name__} caps its logits at {softmax.soft_cap:g}, and {name} would lose the cap: use "
                "the head 'softmax', or set the cap of the model's configuration to None and train without it"
            )
        settings = {"soft_cap": softmax.soft_cap, **settings}
    head = _head_for(layer, name, settings, scale=softmax.scale)
    embeddings = model.get_input_embeddings()
    is_tied = embeddings is not None and embeddings.weight is head.weight
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in head.settings.items()}
    spec: HeadSpec = {
        "format": FORMAT,
        "model_type": model.config.model_type,
        "head": name,
        "settings": plain,  # as JSON has them
        "layer": layer_name,
        "scale": softmax.scale,
        "tied_to": next((key for key, each in model.named_parameters() if each is head.weight), None)
        if is_tied
        else None,
        "version": __version__,
    }
    headed = share_weights(model, headed_class(type(model), spec))
    put_head(headed, WithheldStates(head, scale=softmax.scale).train(model.training))
    return headed


def from_pretrained(path: str | Path, **options: Any) -> Any:
    """Return a model with its head from the folder that its ``save_pretrained`` wrote.

    Args:
        path: the folder.
        options: arguments of ``AutoModelForCausalLM.from_pretrained``, such as ``dtype`` and ``device_map``.

    Raises:
        SourceError: for a folder without a head, of a newer version, or with damaged or missing weights.
        ConfigurationError: for arguments that cannot be chosen, or a ``device_map`` that offloads the head.
    """
    path = Path(path)
    config, kind = loading.config_and_class(path)
    if not hasattr(kind, "spec"):
        raise SourceError(
            f"{path} has no head of this package: load it with AutoModelForCausalLM.from_pretrained, and give the "
            "model to with_head"
        )
    if fixed := sorted(name for name in NOT_OPTIONS if options.get(name)):
        raise ConfigurationError(f"{fixed[0]} cannot be chosen here: give the folder of safetensors, and leave it out")
    options = {name: value for name, value in options.items() if name not in NOT_OPTIONS}
    model: Any = loading.load(kind, path, config, folder.weight_files(path), **options)
    if any(parameter.is_meta for parameter in model.get_output_embeddings().parameters()):
        raise ConfigurationError(f"device_map offloads the head of {path}: map it to a device")
    return model


def output_layer(layer: nn.Linear, name: str, **settings: Any) -> OutputLayer:
    """Return a head in the place of the linear layer at a plain module's end; it shares the layer's weights.

    Its outputs are log-probabilities, which ``F.cross_entropy`` and ``softmax`` take for logits. The blocked loss is
    ``module.lm_head.head.nll(hidden, targets)``.

    Args:
        layer: the layer that makes the logits.
        name: a registered head.
        settings: settings of the head.

    Raises:
        ConfigurationError: for an unknown head or setting, or a layer that is not an ``nn.Linear``.

    Example:
        >>> gpt = nn.ModuleDict({"lm_head": nn.Linear(8, 50, bias=False)})
        >>> gpt["lm_head"] = output_layer(gpt["lm_head"], "mos", components=4)
        >>> gpt["lm_head"](torch.randn(2, 3, 8)).exp().sum(-1).allclose(torch.ones(2, 3))
        True
    """
    if not isinstance(layer, nn.Linear):
        raise ConfigurationError(
            f"a {type(layer).__name__} is not the nn.Linear that makes a model's logits; give that layer"
        )
    return OutputLayer(_head_for(layer, name, settings).train(layer.training))


def _replaceable_layer(model: Any) -> tuple[str, nn.Linear]:
    """Return the name of a model's output layer, and the layer; refuse what cannot be replaced before any training."""
    kind = type(model).__name__
    if refusal := _refusal(model, kind):
        raise ConfigurationError(refusal)
    layer = loading.output_layer(model)
    if isinstance(layer, OutputLayer):
        raise ConfigurationError(f"this {kind} has a head already: give with_head the model without it")
    name = next(key for key, module in model.named_modules() if module is layer)
    if "." in name or name == "head":  # the new head is model.head
        raise ConfigurationError(
            f"the output layer of {kind} is {name}: only a layer of the model itself, with another name than head, can "
            "be replaced"
        )
    if type(layer.weight) is not nn.Parameter:
        raise ConfigurationError(
            f"the weight of {name} is a {type(layer.weight).__name__}, not a plain parameter: it is quantized, spread "
            "over processes, or computed from others (torch.nn.utils.parametrize); give with_head the model before that"
        )
    if layer.weight.is_meta:
        raise ConfigurationError(f"{name} has no weights on a device (meta): load the model without offloading")
    return name, layer


def _refusal(model: Any, kind: str) -> str:
    """Return why a model is not one of transformers' causal language models as it was made, or an empty string."""
    if hasattr(model, "_orig_mod"):
        return f"the {type(model._orig_mod).__name__} is compiled: give with_head the model before that"
    if not hasattr(model, "get_output_embeddings") or not hasattr(model, "save_pretrained"):
        return (
            f"a {kind} is not a causal language model of transformers; in a plain module, replace the layer that makes "
            "the logits: module.lm_head = softmax_bottleneck.integrations.transformers.output_layer(module.lm_head, …)"
        )
    if getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None) is not None:
        return (
            f"{kind} is quantized, and a head trains the embeddings in floating point: load the model without "
            "quantization, in bfloat16 or float32"
        )
    if getattr(model, "_hf_peft_config_loaded", False):
        return (
            f"{kind} has an adapter, and only that would be saved: merge it first, or give with_head the model without "
            "it, and the result to peft.get_peft_model with modules_to_save=[the name of the output layer]"
        )
    for attribute, what in (("forward", "forward pass"), ("_loss_function", "loss function")):
        if attribute in vars(model):
            return (
                f"this {kind} was given another {what} (by accelerate, a device_map with offloading, or by hand), "
                "which a head would not use: give with_head the model before that"
            )
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    is_known = type(model.config) in MODEL_FOR_CAUSAL_LM_MAPPING and not model.config.is_encoder_decoder
    classes: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(model.config)] if is_known else ()
    classes = classes if isinstance(classes, tuple) else (classes,)
    if type(model) in classes or hasattr(model, "spec"):
        return ""
    return (
        f"a {kind} is not the causal language model that transformers has for its configuration "
        f"({', '.join(each.__name__ for each in classes) or 'none'}), and its folder could not be loaded: give an "
        "instance of that class"
    )


def _softmax(model: Any, layer: nn.Linear) -> heads.Softmax:
    """Return the softmax that the model's logits are of, with its scale and soft cap.

    A model whose loss is not the mean cross entropy of the next token, which a head's loss is, is refused.
    """
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    length = min(PROBE, longest) if isinstance(longest, int) and longest > 1 else PROBE
    ids = torch.arange(length, device=next(model.parameters()).device) % layer.out_features
    labels = (5 * ids + 3) % layer.out_features
    outputs = sample(model, ids[None], labels=labels[None])
    _check_loss(model, outputs, labels)
    softmax, _ = softmax_of(layer, outputs, model.config, torch.float32, type(model).__name__)
    return softmax


def _check_loss(model: Any, outputs: Sample, labels: Tensor) -> None:
    """Refuse another loss of the logits of a sample, which depend strongly on context and token."""
    logits, targets = exact(outputs.logits), F.pad(labels, (0, 1), value=IGNORED)[1:]
    expected = F.cross_entropy(logits, targets.to(logits.device), ignore_index=IGNORED)
    if (balance := router_loss(model, outputs.outputs)) is not None:
        expected = expected + exact(balance)
    loss = outputs.outputs.loss
    if not torch.isclose(exact(loss), expected, rtol=LOSS_DIFFERENCE, atol=0.0):
        raise ConfigurationError(
            f"the loss of {type(model).__name__} is {loss:.4g}, and the cross entropy of the next token is "
            f"{expected:.4g}: it does not shift the labels, or it adds a term, so the loss of a head would be another"
        )


def _head_for(layer: nn.Linear, name: str, settings: dict[str, Any], *, scale: float = 1.0) -> Head:
    """Return a new head with the embeddings and biases of a linear layer, in its type and on its device.

    W is shared with the layer, and so with input embeddings that it is tied to, unless its size differs. With settings
    that are not given, the head starts as a softmax, if it can. ``scale`` is a factor on the model's logits, which the
    head's hidden states already have.
    """
    kind = heads.find(name)
    if kind.takes_all_layers:
        raise ConfigurationError(
            f"the head {name!r} takes the hidden states of all layers, and the output layer of this model is given "
            "those of the last: choose another head"
        )
    sizes = {"hidden_size": layer.in_features, "vocab_size": layer.out_features}
    for size, expected in sizes.items():
        if settings.get(size, expected) != expected:
            raise ConfigurationError(
                f"{size}={settings[size]} does not fit the model, whose output layer has {expected:,}: leave {size} out"
            )
    start = dict(kind.as_softmax or {}) if settings.get("embedding_size") in (None, layer.in_features) else {}
    if "bias" in inspect.signature(kind).parameters:
        start["bias"] = layer.bias is not None
    with torch.device(layer.weight.device):
        head = heads.build(name, **{**start, **settings, **sizes}).to(layer.weight.dtype)
    if head.weight.shape == layer.weight.shape:
        head.weight = cast(nn.Parameter, layer.weight)
    if head.bias is not None and layer.bias is not None:
        with torch.no_grad():
            head.bias.copy_(layer.bias * scale)
        head.bias.requires_grad_(layer.bias.requires_grad)
    return head
