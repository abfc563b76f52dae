"""The output layer of a model, a file or an object, without a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from ..core.options import LayerOptions, takes
from ..errors import SourceError
from ..heads import REGISTRY, Head, Softmax
from ..hugging_face import HuggingFaceOnText
from ..hugging_face.checks import unloaded_head
from ..hugging_face.final_norm import Ellipse, final_ellipse
from ..hugging_face.loading import HuggingFaceModel, loaded_model
from ..hugging_face.on_text import saved
from ..hugging_face.tokenizer import Tokenizer
from ..hugging_face.weights import read_weights
from ..language_models import ModelOnText, RunOnText, Source
from ..language_models.checked_product import weight_of
from ..language_models.checkpoint import Run, load
from ..language_models.on_text import masked_bias
from .array_files import read_array
from .hidden_states import softmax_of
from .kinds import KINDS, find
from .matrix import MatrixSource

Names = Callable[[list[int]], list[str]]


@dataclass(frozen=True, eq=False)
class OutputWeights:
    """W and b of an output layer, and what is known of it without a text."""

    weight: Tensor
    """W, (M, d), in the type that it is stored in; float32 where a quantized file was dequantized."""
    bias: Tensor | None
    """b, (M,), −∞ for tokens that are masked."""
    head: Head
    """The head for its kind, sizes and bound; its weights may not be loaded."""
    source: Mapping[str, Any]
    """``path``, ``kind`` and ``head``, and the types of a quantized file."""
    stored: str
    """Type of W in its file, such as ``"bfloat16"`` or ``"Q8_0"``."""
    tied: bool | None = None
    """Whether W is also the input embeddings, if that is known."""
    names: Names | None = None
    """Returns the tokens of ids."""
    own_tokens: int | None = None
    """Number of tokens of the tokenizer, which may be less than M."""
    ellipse: Callable[[], Ellipse | None] = lambda: None
    """Loads the model and returns the ellipse of its final norm, if it has one."""
    unused: tuple[int, ...] = ()
    """Ids of the tokens that the tokenizer names as reserved or unused."""


@takes(LayerOptions)
def output_weights(source: Any, **options: Unpack[LayerOptions]) -> OutputWeights:
    """Return the output layer of a source without its text, which is neither read nor asked for.

    Args:
        source: a run, a Hugging Face model (a folder, a name or a loaded one), a GGUF file, W as an array or FILE or
            FILE:NAME, an ``nn.Linear``, a `Head`, or an opened `Source`.
        options: see `LayerOptions`.

    Raises:
        SourceError: for what has no output layer.
    """
    if isinstance(source, Path):
        source = str(source)
    if isinstance(source, Source):
        return _of_opened(source)
    kind, bias = find(source), options.get("bias")
    revision, allow_pickle = options.get("revision"), options.get("allow_pickle", False)
    if kind is KINDS["hugging-face"]:
        found = saved(source, dtype="auto", revision=revision, allow_pickle=allow_pickle)
        layer = _of_model(found.model, source, _tokenizer(found.tokenizer), found.quantization)
    elif kind is KINDS["loaded model"]:
        layer = _of_model(loaded := loaded_model(source, dtype="auto"), loaded.name, None, None)
    elif kind is KINDS["run"]:
        layer = _of_run(source if isinstance(source, Run) else load(Path(source), body=False))
    elif kind is KINDS["head"]:
        layer = _of_head(source, type(source).__name__)
    elif kind in (KINDS["array file"], KINDS["array"]):
        W, path = (read_array(source), source) if isinstance(source, str) else (source, "array")
        layer = _of_head(softmax_of(W, bias), path)
    else:
        raise SourceError(f"{kind.what} is not an output layer: give a model, or W, (M, d), as an array or FILE:NAME")
    if options.get("vocab") == "tokenizer" and layer.own_tokens is not None:
        part = slice(layer.own_tokens)
        layer = replace(layer, weight=layer.weight[part], bias=None if layer.bias is None else layer.bias[part])
    return layer


def _of_head(head: Head | nn.Linear, path: str, **more: Any) -> OutputWeights:
    if isinstance(head, nn.Linear):
        weight = weight_of(head, f"this {type(head).__name__}")
        head = Softmax.of(weight, None if head.bias is None else head.bias.detach())
    bias = None if head.bias is None else masked_bias(head.bias.detach(), scale=getattr(head, "scale", 1.0))
    name = {cls: name for name, cls in REGISTRY.items()}.get(type(head), type(head).__name__)
    about = {"path": path, "kind": "head", "head": name}
    stored = str(head.weight.dtype).removeprefix("torch.")
    return OutputWeights(head.weight.detach(), bias, head, about, stored, **more)


def _of_run(run: Run) -> OutputWeights:
    def names(ids: list[int]) -> list[str]:
        return run.vocabulary.decode(np.asarray(ids, dtype=np.int64))

    tied = run.model.config.tie_embeddings
    layer = _of_head(run.model.head, str(run.path), tied=tied, names=names, own_tokens=len(run.vocabulary))
    return replace(layer, source={**layer.source, "kind": "run"})


def _tokenizer(read: Callable[[], Tokenizer | None]) -> Tokenizer | None:
    """Return a tokenizer, or ``None`` where there is none that can be read: only names are missing without it."""
    try:
        return read()
    except SourceError:
        return None


def _of_model(
    model: HuggingFaceModel, path: str, tokenizer: Tokenizer | None, quantization: str | None
) -> OutputWeights:
    weight, bias, stored = read_weights(model)
    head = unloaded_head(model.module, torch.float32)
    spec = getattr(model.module, "spec", {"head": "softmax"})
    about = {"path": path, "kind": "hugging-face", "head": spec["head"]}
    return OutputWeights(
        weight.detach(),
        None if bias is None else masked_bias(bias.float(), scale=getattr(head, "scale", 1.0)),
        head,
        about | ({"quantization": quantization} if quantization else {}),
        stored,
        model.tied,
        names=None if tokenizer is None else tokenizer.tokens,
        own_tokens=None if tokenizer is None else tokenizer.size,
        ellipse=lambda: final_ellipse(model),
        unused=() if tokenizer is None else tuple(tokenizer.unused()),
    )


def _of_opened(source: Source) -> OutputWeights:
    """Return the checked output layer of an opened model, or an opened matrix of kind ``"matrix"`` as W."""
    if isinstance(source, MatrixSource) and source.description["kind"] == "matrix":
        W = torch.cat([torch.from_numpy(block.log_probs.copy()) for block in source.blocks()])
        return replace(_of_head(Softmax.of(W), ""), source=source.description)
    if not isinstance(source, ModelOnText):
        raise SourceError(
            f"{source.description['path']} is not an output layer: give a model, or W, (M, d), as an array or FILE:NAME"
        )
    head, tied, own = source.head, None, None
    if isinstance(source, HuggingFaceOnText):
        tied, own = source.model.tied, source.vocabularies["tokenizer"]
    elif isinstance(source, RunOnText):
        tied = source.run.model.config.tie_embeddings
    names = None if source.text is None else source.text.tokens
    layer = _of_head(head, "", tied=tied, names=names, own_tokens=own)
    return replace(layer, source=source.description)
