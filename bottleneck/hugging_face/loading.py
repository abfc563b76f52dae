"""Load a Hugging Face causal language model from safetensors, and run it up to its output layer."""

from __future__ import annotations

import inspect
import logging
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..core.full_precision import alone, evaluating, full_precision
from ..errors import ConfigurationError, Parameter, SourceError, first_line
from ..language_models.checked_product import THROUGH_A_FUNCTION
from . import folder, gguf
from .headed import MARK, OutputLayer, checked_spec, headed_class

BODY_DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
FLOATING = {"F64", "F32", "F16", "BF16", *map(str, BODY_DTYPES.values())}
"""Types of weights, by their names in safetensors and torch, that need no scale."""
FIXED: dict[str, Any] = {
    "ignore_mismatched_sizes": True,  # such weights are refused by name
    "weights_only": True,
    "local_files_only": True,
    "output_loading_info": True,
}
"""Arguments of ``from_pretrained`` that are always these, with ``trust_remote_code=False``."""
FAILURES = (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""Errors of a model whose weights or settings do not fit each other."""


BUFFERS = re.compile(r"(inv_freq|position_ids|masked_bias|(^|\.)(attn|attention)\.bias)$")
"""Names of masks and positions that old files hold, which models compute themselves."""
logger = logging.getLogger(__name__)


class Loadable(Protocol):
    """What a model of transformers says of itself before its weights are read, and the model with them."""

    name: str
    module: Any
    files: list[Path]

    @property
    def body(self) -> Any:
        """The model with its weights."""

    @property
    def body_type(self) -> str:
        """Name of the type that the body runs in."""

    @property
    def input_size(self) -> int:
        """Number of tokens that the model reads."""


@contextmanager
def quiet() -> Iterator[Any]:
    """Yield transformers with its progress bars and warnings switched off; errors are still reported."""
    transformers = folder.import_transformers()
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


def body_dtype(dtype: str, saved_dtype: object) -> str:
    """Return the type of a model's body, that of its file for ``"auto"``; `ConfigurationError` for an unknown type."""
    chosen = str(saved_dtype or "float32").removeprefix("torch.") if dtype == "auto" else dtype
    if chosen not in BODY_DTYPES:
        raise ConfigurationError(
            f"unknown dtype {chosen!r}; a Hugging Face model runs in {', '.join(BODY_DTYPES)} or auto"
        )
    return chosen


@contextmanager
def configuring(path: Path) -> Iterator[None]:
    """Turn what transformers raises for a configuration, which may be anything, into one sentence."""
    try:
        with quiet():
            yield
    except Exception as error:
        raise SourceError(f"transformers cannot read the configuration of {path}: {first_line(error)}") from error


def config_and_class(path: Path) -> tuple[Any, Any]:
    """Return the configuration of a folder's model, and its class, that of a model with a head for a folder of one."""
    values = folder.read_config(path)
    mark = values.pop(MARK, None)
    with configuring(path):
        from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

        kind: Any = CONFIG_MAPPING[values["model_type"]]
        config = kind.from_dict(kind._decode_special_floats(values))
        base: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return config, base if mark is None else headed_class(base, checked_spec(mark, path / folder.CONFIG))


def load(kind: Any, path: Path, config: Any, files: list[Path], **options: Any) -> Any:
    """Return the model of a class and configuration with the weights in its files; ``options`` of ``from_pretrained``.

    Raises:
        SourceError: when a weight is missing, of another shape than the configuration says, unreadable, or an integer.
    """
    place = path
    with quiet() as transformers, redirect_stderr(StringIO()), gguf.read_quickly():  # nothing else hides its GGUF bars
        try:
            options |= {**FIXED, "config": config, "use_safetensors": files[0].suffix == ".safetensors"}
            if path.is_file():
                place, options["gguf_file"] = path.parent, path.name
                if hasattr(transformers, "GgufConfig"):  # otherwise it keeps weights quantized where it has kernels
                    options["quantization_config"] = transformers.GgufConfig(dequantize=True)
            else:
                _check_types(kind, path, config, files)
            model, info = kind.from_pretrained(place, trust_remote_code=False, **options)
            if path.is_file():
                gguf.complete(model, path)
        except (*FAILURES, OSError, ImportError, UnpicklingError) as error:
            raise SourceError(f"transformers cannot load {path}: {first_line(error)}") from error
    if misfit := _misfit(model, info) or _unused(model, path, info["unexpected_keys"]):
        raise SourceError(f"the weights of {path} do not fit its configuration: {misfit}")
    return model


def _misfit(model: Any, info: Mapping[str, Any]) -> str:
    """Return which weight lacks its numbers, in whose place random ones would stand, and what to do; otherwise ''."""
    for name, stored, needed in sorted(info["mismatched_keys"]):
        if 0 in stored:
            return (
                f"{name} is empty, as DeepSpeed's ZeRO-3 leaves a weight that it spreads over processes: make whole "
                "weights with the zero_to_fp32.py of the checkpoint, or gather them when the model is saved"
            )
        return (
            f"{name} has the shape {tuple(stored)}, not {tuple(needed)}: put the config.json beside them that was "
            "saved with them"
        )
    if not (missing := sorted(info["missing_keys"])):
        return ""
    endings = tuple(f".{name}" for name in missing)
    if longer := sorted(name for name in info["unexpected_keys"] if name.endswith(endings)):
        remedy = f"{longer[0]} has a name too long: save the model itself, without what wraps it"
    elif {model.get_submodule(name.rpartition(".")[0]) for name in missing} == {model.get_output_embeddings()}:
        remedy = (
            "if the output layer is the input embeddings, set tie_word_embeddings in config.json to true; otherwise "
            "give all files of the model"
        )
    else:
        remedy = folder.AGAIN
    return f"{missing[0]} is missing; {remedy}"


def _unused(model: Any, path: Path, names: Collection[str]) -> str:
    """Return which weights of layers or biases the model leaves out, and what to do; log other tensors left out."""
    names = sorted(name for name in names if not BUFFERS.search(name))
    patterns = {re.sub(r"\d+", "0", name) for name in model.state_dict()}
    modules = dict(model.named_modules())

    def is_part(name: str) -> bool:
        module, _, leaf = name.rpartition(".")
        pattern = re.sub(r"\d+", "0", name)
        return leaf in getattr(modules.get(module), "_parameters", ()) or any(
            f".{each}".endswith(f".{pattern}") for each in patterns
        )

    if not names:
        return ""
    said = f"{len(names)} tensors of the files are not used, first {names[0]}"
    if all(map(is_part, names)) and not hasattr(model.config, "quantization_config"):
        return f"{said}: put the config.json beside them that was saved with them"
    logger.warning("%s: %s", path, said)
    return ""


def _check_types(kind: Any, path: Path, config: Any, files: list[Path]) -> None:
    """Refuse weights that transformers would take for floating-point numbers, and that are not."""
    from transformers.quantizers.auto import AutoHfQuantizer

    floats = "give the model in bfloat16, float16 or float32"
    for each in (config, config.get_text_config()):
        if quantization := getattr(each, "quantization_config", None):
            if AutoHfQuantizer.supports_quant_method(quantization):
                return
            raise SourceError(
                f"the config.json of {path} names the quantization {quantization.get('quant_method')!r}, which "
                f"transformers does not know: {floats}, without quantization_config"
            )
    others = {each.name: each.dtype for each in folder.stored_tensors(files) if each.dtype not in FLOATING}
    with torch.device("meta"):
        parameters = [name for name, _ in kind(config).named_parameters()] if others else []
    for name, dtype in sorted(others.items()):
        # Older files hold masks, which are not parameters.
        if name.endswith(".weight") or any(is_same_name(name, parameter) for parameter in parameters):
            raise SourceError(
                f"the weights of {path} hold {name} as {dtype}, which needs a scale to be a weight, and its "
                f"config.json names no quantization that transformers knows: {floats}"
            )


def is_same_name(one: str, other: str) -> bool:
    """Return whether two names of modules or parameters differ at most by a prefix, as a file's and a model's may."""
    return f".{one}".endswith(f".{other}") or f".{other}".endswith(f".{one}")


def output_layer(module: Any) -> nn.Linear | OutputLayer:
    """Return the module that computes logits from hidden states: one linear layer, or a head of this package."""
    layer = module.get_output_embeddings()
    if type(layer).__name__ == "ModulesToSaveWrapper":  # PEFT's, around a copy of the layer that is trained
        names = [] if layer.disable_adapters else layer.active_adapters
        is_active = bool(names) and all(name in layer.modules_to_save for name in names)
        layer = layer.modules_to_save[names[0]] if is_active else layer.original_module
    if isinstance(layer, nn.Linear | OutputLayer):
        return layer
    kind = "none" if layer is None else type(layer).__name__
    if kind == "Linear":  # another one, such as torch's quantized layer
        kind = f"{type(layer).__module__}.{kind}"
    remedy = THROUGH_A_FUNCTION
    if layer is None:
        remedy = "give the whole model, as AutoModelForCausalLM loads it, in place of its body"
    if type(layer).__module__.startswith("peft."):
        remedy = f"merge the adapter into a copy of it by copy.deepcopy(model).merge_and_unload(), or {remedy}"
    raise SourceError(
        f"the output layer of {type(module).__name__} is {kind}, not one linear layer: it cannot be taken apart; "
        f"{remedy}"
    )


def final_hidden(module: Any, ids: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the input of the output layer, (B, L, d), for ids and mask (B, L); logits are computed for one token."""
    return run(module, ids, mask, pass_on=lambda states: states[:, :1])[0]


@alone()
def run(
    module: Any,
    ids: Tensor,
    mask: Tensor | None = None,
    *,
    pass_on: Callable[[Tensor], Tensor],
    **more: Tensor,
) -> tuple[Tensor, Any]:
    """Return the input of a model's output layer, and the model's outputs; the model is not changed.

    The output layer is given what ``pass_on`` makes of its input. ``ids`` and ``mask`` are (B, L), and ``more`` are
    further arguments of the model.

    Raises:
        SourceError: when the model fails, or does not give its output layer one hidden state for each token.
    """
    layer, kind = output_layer(module), type(module).__name__
    states: list[Tensor] = []

    def take(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        states.append(inputs[0])
        return (pass_on(inputs[0]),)

    device = next(module.parameters()).device
    arguments: dict[str, Any] = {"input_ids": ids.to(device), "use_cache": False, "return_dict": True, **more}
    if "attention_mask" in inspect.signature(module.forward).parameters:
        arguments["attention_mask"] = (torch.ones_like(ids) if mask is None else mask).to(device)
    with ExitStack() as stack:
        entrance = layer.input if isinstance(layer, OutputLayer) else layer
        stack.enter_context(entrance.register_forward_pre_hook(take))
        stack.enter_context(evaluating(module))
        stack.enter_context(full_precision())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        try:
            outputs = module(**arguments)
        except FAILURES as error:
            if "memory" in str(error):
                raise
            raise SourceError(
                f"{kind} cannot read {ids.shape[1]:,} tokens of text: {first_line(error)}; set another ",
                Parameter("context_length"),
                ", or download the model again",
            ) from error
    if len(states) != 1 or states[0].shape[:2] != ids.shape:
        raise SourceError(
            f"the output layer of {kind} does not receive one hidden state for each token, as where the forward pass "
            f"uses its weight alone: {THROUGH_A_FUNCTION}"
        )
    return states[0], outputs
