"""Replace the output layer of a model of the package transformers, or of a plain module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import heads
from ..errors import ConfigurationError, SourceError
from ..hugging_face import folder, loading
from ..hugging_face.headed import HeadSpec, headed_class, put_head, read_spec, same_weights
from ..hugging_face.output import OutputLayer, WithheldStates, head_for, head_settings
from ..hugging_face.output_layer import full_precision_head
from ..hugging_face.replaceable import check_loss, probe_ids, replaceable_layer

NOT_OPTIONS = ("output_loading_info", "subfolder", "variant", "use_safetensors", "trust_remote_code")
"""Arguments of ``from_pretrained`` of transformers that are not taken."""


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
    layer_name, layer = replaceable_layer(model)
    softmax = _checked_softmax(model, layer)
    if softmax.soft_cap is not None:
        if name != "softmax":
            raise ConfigurationError(
                f"{type(model).__name__} caps its logits at {softmax.soft_cap:g}, and {name} would lose the cap: use "
                "the head 'softmax', or set the cap of the model's configuration to None and train without it"
            )
        settings = {"soft_cap": softmax.soft_cap, **settings}
    given = head_settings(name, layer, settings)
    embeddings = model.get_input_embeddings()
    head = head_for(layer, name, given, scale=softmax.scale)
    tied = embeddings is not None and embeddings.weight is head.weight
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    tied_to = names[id(head.weight)] if tied else None
    spec = HeadSpec(name, _plain(head.settings), layer_name, softmax.scale, tied_to)
    headed = same_weights(model, headed_class(type(model), spec))
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
    folder.read_config(path)
    if read_spec(path) is None:
        raise SourceError(
            f"{path} has no head of this package (bottleneck_head.json): load it with "
            "AutoModelForCausalLM.from_pretrained, and give the model to with_head"
        )
    if refused := sorted(name for name in NOT_OPTIONS if options.get(name)):
        raise ConfigurationError(
            f"{refused[0]} cannot be chosen here: give the folder of safetensors, and leave it out"
        )
    model: Any = loading.read(path, **options)
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
    return OutputLayer(head_for(layer, name, head_settings(name, layer, settings)).train(layer.training))


def _checked_softmax(model: Any, layer: nn.Linear) -> heads.Softmax:
    """Return the softmax that the model's logits are of, with its scale and soft cap."""
    ids = probe_ids(model, layer)
    check_loss(model, layer, ids)
    sample = loading.sample(model, layer, ids)
    return full_precision_head(layer, sample, model.config, dtype=torch.float32, what=type(model).__name__)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as JSON has them."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
