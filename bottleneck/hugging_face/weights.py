"""The output layer of a saved model as its files store it, read without the rest of the model."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from ..language_models.checked_product import weight_of
from . import gguf
from .folder import stored_tensors
from .loading import FLOATING, Loadable, is_same_name, output_layer

RENAMED = {"lm_head": "embed_out"}
"""Names of modules that transformers renames when it reads a file, and their names in the file: GPT-NeoX's."""
AT_ONCE = 8192
"""Rows of a GGUF tensor that are dequantized at once."""


def read_weights(model: Loadable) -> tuple[Tensor, Tensor | None, str]:
    """Return W, (M, d), and the bias, (M,), in the types of the file, and the name of W's type, such as ``"Q8_0"``.

    Quantized weights of a GGUF file are dequantized to float32. Where the names in the files do not tell which tensors
    they are, and for pickled weights, the whole model is loaded.
    """
    layer = _owner(model.module)
    parameters = [layer.weight, *([] if layer.bias is None else [layer.bias])]
    stored = ""
    if model.files and gguf.is_gguf(model.files[0]):
        tensors, stored = _from_gguf(model.files[0])
    else:
        tensors = [found for each in parameters if (found := _from_safetensors(model, each)) is not None]
    if [each.shape for each in tensors] != [each.shape for each in parameters]:
        layer = _owner(model.body)
        tensors = [weight_of(layer, model.name), *([] if len(parameters) == 1 else [layer.bias.detach()])]
    stored = stored or str(tensors[0].dtype).removeprefix("torch.")
    return tensors[0], tensors[1] if len(tensors) > 1 else None, stored


def _owner(module: Any) -> Any:
    """Return the module that holds W and b: the linear output layer, or the head in its place."""
    layer = output_layer(module)
    return getattr(layer, "head", layer)


def _from_safetensors(model: Loadable, parameter: Tensor) -> Tensor | None:
    """Return the one stored tensor that has a name of a parameter, or that name without or with a prefix."""
    names = [name for name, each in model.module.named_parameters(remove_duplicate=False) if each is parameter]
    for module, name in itertools.product(RENAMED, names.copy()):
        names.append(name.replace(module, RENAMED[module]))
    files = [file for file in model.files if file.suffix == ".safetensors"]
    fitting = [
        each
        for each in stored_tensors(files)
        if "." in each.name and any(is_same_name(each.name, name) for name in names)
    ]
    if len(fitting) != 1 or fitting[0].dtype not in FLOATING:  # others have scales, which the model applies
        return None
    with safe_open(fitting[0].file, framework="pt") as opened:
        tensor: Tensor = opened.get_tensor(fitting[0].name)
    return tensor


def _from_gguf(file: Path) -> tuple[list[Tensor], str]:
    """Return the output embeddings (the input embeddings if there are none), the bias if any, and the type of W.

    The reader of the package gguf would make objects of all tokens first, which takes seconds.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    header = gguf.read_header(file)
    names = [gguf.OUTPUT if gguf.OUTPUT in header.types else gguf.INPUT, gguf.OUTPUT.replace("weight", "bias")]

    def read(name: str) -> Tensor:
        kind, (start, (length, *others)) = GGMLQuantizationType[header.types[name]], header.places[name]
        block, block_bytes = GGML_QUANT_SIZES[kind]
        width, count = length // block * block_bytes, math.prod(others)
        parts = []
        for row in range(0, count, AT_ONCE):
            size = min(AT_ONCE, count - row) * width
            stored = np.fromfile(file, np.uint8, size, offset=start + row * width).reshape(-1, width)
            parts.append(np.asarray(dequantize(stored, kind)))
        return torch.from_numpy(np.concatenate(parts).reshape(*others, length))

    return [read(name) for name in names if name in header.types], header.types[names[0]]
