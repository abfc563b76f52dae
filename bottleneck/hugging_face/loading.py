"""Load a Hugging Face causal language model from safetensors, and run it up to its output layer."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..core.full_precision import full_precision
from ..core.unchanged import unchanged
from ..errors import SourceError, first_line
from ..language_models.checked_product import THROUGH_A_FUNCTION, WITHOUT_LOGITS
from . import folder
from .folder import import_transformers
from .headed import model_class
from .output import OutputLayer

BODY_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
FLOATING = {"F64", "F32", "F16", "BF16", *map(str, BODY_DTYPES.values())}
"""Types of weights, by their names in safetensors and torch, that need no scale."""
LARGEST = {"num_hidden_layers": 10_000, "hidden_size": 2**24, "vocab_size": 2**28}
"""Sizes beyond those of any model."""
FIXED: dict[str, Any] = {
    "ignore_mismatched_sizes": True,  # such weights are refused by name
    "weights_only": True,
    "local_files_only": True,
    "output_loading_info": True,
}
"""Arguments of ``from_pretrained`` that are always these, with ``trust_remote_code=False``."""
PROBED = 100.0
"""The largest product that replaces the output layer's in a test: above the soft caps in use, and safe in float32."""
LEAST_PRODUCT = 1e-30
"""Products smaller than this, such as those of zero weights, are not scaled up further."""


@contextmanager
def quiet() -> Iterator[Any]:
    """Yield transformers with its progress bars and warnings switched off; errors are still reported."""
    transformers = import_transformers()
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def skeleton(path: Path) -> nn.Module:
    """Return the model without weights, for its shapes.

    Raises:
        SourceError: for a configuration that transformers cannot read.
    """
    with quiet() as transformers, torch.device("meta"):
        try:
            config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False, local_files_only=True)
            _check_sizes(config)
            model: nn.Module = model_class(path, config)._from_config(config)
            return model
        except SourceError:
            raise
        except Exception as error:  # a configuration out of range can fail anywhere in a model's constructor
            raise SourceError(f"transformers cannot read the configuration of {path}: {first_line(error)}") from error


def _check_sizes(config: Any) -> None:
    """Refuse sizes that no model has: a constructor may take them, or build layers for hours."""
    for name, limit in LARGEST.items():
        value = getattr(config.get_text_config(), name, None)
        if isinstance(value, int) and not 1 <= value <= limit:
            raise ValueError(f"its {name} is {value}, and 1 to {limit:,} are possible")


def read(path: Path, *, pickled: bool = False, **options: Any) -> nn.Module:
    """Return the model, with its head where its folder has one.

    Args:
        path: folder of the model.
        pickled: whether its weights are pickled.
        options: arguments of ``from_pretrained`` of transformers.

    Raises:
        SourceError: when a weight is missing, of another shape than the configuration says, unreadable, or an integer.
    """
    with quiet() as transformers:
        try:
            _check_types(path, pickled=pickled)
            config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False, local_files_only=True)
            options.pop("trust_remote_code", None)
            model, info = model_class(path, config).from_pretrained(
                path, trust_remote_code=False, **{**options, **FIXED, "use_safetensors": not pickled}
            )
        except (OSError, ValueError, KeyError, RuntimeError, ImportError, UnpicklingError) as error:
            raise SourceError(f"transformers cannot load {path}: {first_line(error)}") from error
    for what in ("missing_keys", "mismatched_keys"):
        if info[what]:
            name = sorted(map(str, info[what]))[0]
            raise SourceError(
                f"the weights of {path} do not fit its config.json: {name} is "
                f"{'missing' if what == 'missing_keys' else 'of another shape'}, and random numbers would stand in for "
                "it; download the model again"
            )
    loaded: nn.Module = model
    return loaded


def _check_types(path: Path, *, pickled: bool) -> None:
    """Refuse weights that transformers would take for floating-point numbers and that are none."""
    others = {name: dtype for name, dtype in _stored_types(path, pickled=pickled) if dtype not in FLOATING}
    quantization = _quantization(path)
    if _is_known(quantization):
        return
    if quantization and not others:
        raise SourceError(
            f"the config.json of {path} names the quantization {quantization.get('quant_method')!r}, which "
            "transformers does not know: give the model in bfloat16, float16 or float32, without quantization_config"
        )
    parameters = ["." + name for name, _ in skeleton(path).named_parameters()]
    for name in sorted(others):
        # The file's names may lack the prefix of the model's; and older files hold masks, which are no parameters.
        if name.endswith(".weight") or any(parameter.endswith("." + name) for parameter in parameters):
            raise SourceError(
                f"the weights of {path} hold {name} as {others[name]}, which is no weight without its scale, and its "
                "config.json names no quantization that transformers knows: give the model in bfloat16, float16 or "
                "float32"
            )


def _stored_types(path: Path, *, pickled: bool) -> Iterator[tuple[str, str]]:
    """Yield the name and type of each tensor in the files of a model's weights."""
    for file in folder.weight_files(path, allow_pickle=pickled):
        if pickled:
            weights = torch.load(file, weights_only=True, map_location="meta")
            yield from ((name, str(tensor.dtype)) for name, tensor in weights.items() if isinstance(tensor, Tensor))
            continue
        with safe_open(file, framework="pt") as tensors:
            yield from ((name, tensors.get_slice(name).get_dtype()) for name in sorted(tensors.keys()))


def _quantization(path: Path) -> dict[str, Any]:
    config = folder.read_config(path)
    return config.get("quantization_config") or (config.get("text_config") or {}).get("quantization_config") or {}


def _is_known(quantization: dict[str, Any]) -> bool:
    """Return whether transformers can dequantize a model's weights."""
    from transformers.quantizers.auto import AutoHfQuantizer

    return bool(quantization and AutoHfQuantizer.supports_quant_method(quantization))


def check_tied(model: nn.Module, name: str, files: list[Path]) -> None:
    """Refuse safetensors that hold two different matrices for input and output embeddings that are tied.

    Args:
        model: the model without weights.
        name: name of the model.
        files: the files of its weights.
    """
    module = output_layer(model, name)
    weight, layer = module.weight, next(key for key, part in model.named_modules() if part is module)
    tied = [key for key, parameter in model.named_parameters(remove_duplicate=False) if parameter is weight]
    first: Tensor | None = None
    for file in files if len(tied) > 1 else []:
        with safe_open(file, framework="pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118 (not a dict)
                if not any(weight_name == key or weight_name.endswith(f".{key}") for weight_name in tied):
                    continue
                tensor = tensors.get_tensor(key)
                if first is not None and not torch.equal(first, tensor):
                    raise SourceError(
                        f"the weights of {name} hold an output layer of its own ({layer}.weight), and its config.json "
                        "ties it to the input embeddings: set tie_word_embeddings to false"
                    )
                first = tensor


def output_layer(model: nn.Module, name: str) -> nn.Linear | OutputLayer:
    """Return the module that computes logits from hidden states.

    Raises:
        SourceError: when it is neither one linear layer nor a head of this package.
    """
    layer = model.get_output_embeddings()  # type: ignore[operator]
    if not isinstance(layer, nn.Linear | OutputLayer):
        kind = "none" if layer is None else type(layer).__name__
        if kind == "Linear":  # another one, such as torch's quantized layer
            kind = f"{type(layer).__module__}.{kind}"
        is_adapter = type(layer).__module__.startswith("peft.")
        remedy = "merge the adapter into it by model.merge_and_unload()" if is_adapter else THROUGH_A_FUNCTION
        raise SourceError(
            f"the output layer of {name} is {kind}, not one linear layer: it cannot be taken apart; {remedy}"
        )
    return layer


def input_size(model: nn.Module, name: str) -> int:
    """Return the number of tokens that a model reads; its output layer may have rows for more of them, or for fewer."""
    weight = getattr(model.get_input_embeddings(), "weight", None)  # type: ignore[operator]
    return len(output_layer(model, name).weight if weight is None else weight)


def hidden_of(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the input of the output layer, (L, d), for the ids (L,)."""
    return final_hidden(model, ids.unsqueeze(0), torch.ones_like(ids).unsqueeze(0))[0]


def final_hidden(model: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the input of the output layer, (B, L, d), for ids and mask (B, L); logits are computed for one token."""
    layer = output_layer(model, type(model).__name__)
    entrance = layer.input if isinstance(layer, OutputLayer) else layer
    taken: list[Tensor] = []

    def take(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        taken.append(inputs[0])
        return (inputs[0][:, :1],)

    _run(model, ids, mask, entrance.register_forward_pre_hook(take))
    return _only(taken, model, ids)


class Sample(NamedTuple):
    """The outputs of a model for some tokens, before and after its output layer."""

    hidden: Tensor
    """(L, d), the input of the output layer."""
    product: Tensor
    """(L, M), the output of the output layer."""
    probe: Tensor
    """(L, M), the product in float32 or wider, scaled to ±`PROBED`, which replaced the output in a second run."""
    logits: Tensor
    """(L, M), the model's logits in that second run."""


def sample(model: nn.Module, layer: nn.Linear, ids: Tensor) -> Sample:
    """Return the outputs of a model for the ids (L,)."""
    taken: list[Tensor] = []
    products: list[Tensor] = []
    probes: list[Tensor] = []

    def replace(module: nn.Module, inputs: tuple[Tensor, ...], product: Tensor) -> Tensor:
        taken.append(inputs[0])
        products.append(product)
        finite = product.isfinite()
        wide = product.to(torch.promote_types(product.dtype, torch.float32))
        largest = wide.abs().where(finite, 0.0).max().clamp_min(LEAST_PRODUCT)
        probes.append(wide * (PROBED / largest))
        return probes[-1].clone()  # some models change it in place

    batch = ids.unsqueeze(0)
    outputs = _run(model, batch, torch.ones_like(batch), layer.register_forward_hook(replace))
    hidden, logits = _only(taken, model, batch)[0], getattr(outputs, "logits", None)
    if logits is None:
        raise SourceError(f"the output of {type(model).__name__} has no logits: {WITHOUT_LOGITS}")
    return Sample(hidden, products[0][0], probes[0][0], logits[0])


def with_spread_logits(model: nn.Module, layer: nn.Linear, ids: Tensor, *, labels: Tensor) -> Any:
    """Return a model's outputs for ids and labels (L,) where the output layer makes very different logits."""

    def replace(module: nn.Module, inputs: tuple[Tensor, ...], product: Tensor) -> Tensor:
        length, width = product.shape[-2:]
        spread = torch.arange(length * width, device=product.device).view(length, width) * 7 % 10
        return spread.expand(product.shape).to(product.dtype, copy=True)

    batch = ids.unsqueeze(0)
    hook = layer.register_forward_hook(replace)
    return _run(model, batch, torch.ones_like(batch), hook, labels=labels.unsqueeze(0))


def _only(taken: list[Tensor], model: nn.Module, ids: Tensor) -> Tensor:
    if len(taken) != 1 or taken[0].shape[:2] != ids.shape:
        raise SourceError(
            f"the output layer of {type(model).__name__} does not receive one hidden state for each token, as where "
            f"the forward pass uses its weight alone: {THROUGH_A_FUNCTION}"
        )
    return taken[0]


def _run(model: nn.Module, ids: Tensor, mask: Tensor, hook: RemovableHandle, **more: Tensor) -> Any:
    """Return the outputs of a model that is run with a hook, which is removed."""
    device = next(model.parameters()).device
    arguments: dict[str, Any] = {"input_ids": ids.to(device), "use_cache": False, "return_dict": True, **more}
    if "attention_mask" in inspect.signature(model.forward).parameters:
        arguments["attention_mask"] = mask.to(device)
    with hook, unchanged(model), full_precision(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return model(**arguments)
        except (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError) as error:
            if "memory" in str(error):
                raise
            raise SourceError(
                f"{type(model).__name__} cannot read {ids.shape[1]:,} tokens of text: {first_line(error)}; set another "
                "--context-length, or download the model again"
            ) from error
