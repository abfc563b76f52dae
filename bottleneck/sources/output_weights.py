"""The output layer of a source, without a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import torch

from ..core.options import LayerOptions, takes
from ..errors import ConfigurationError, Parameter, SourceError
from ..heads import Softmax
from ..hugging_face.model import HuggingFaceModel, loaded_model, saved_model
from ..language_models import ModelOnText, RunModel, Source
from ..language_models.checkpoint import Run, load
from ..language_models.layer import OutputWeights, name_of, weights_of
from ..language_models.run import run_layer
from .array_files import read_array
from .hidden_states import softmax_of
from .kinds import KINDS, find
from .matrix import MatrixSource

INSTEAD = "give an nn.Linear, a Head, a model, or W, (M, d), as an array or FILE:NAME"


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
    kind, bias = find(source), options.get("bias")
    if kind is KINDS["source"]:
        layer = _of_opened(source)
    elif kind is KINDS["states"]:
        layer = _of_opened(kind.open(source, bias=bias))
    elif kind is KINDS["hugging-face"]:
        more: Any = {name: options[name] for name in ("revision", "allow_pickle") if name in options}
        layer = saved_model(source, dtype="auto", **more).layer()
    elif kind is KINDS["loaded model"]:
        layer = loaded_model(source).layer()
    elif kind is KINDS["run"]:
        layer = run_layer(source if isinstance(source, Run) else load(Path(source), body=False))
    elif kind is KINDS["head"]:
        layer = weights_of(source, {"path": type(source).__name__, "kind": "head", "head": name_of(source)})
    elif kind in (KINDS["array file"], KINDS["array"]):
        W, path = (read_array(source), source) if isinstance(source, str) else (source, "array")
        head, about = softmax_of(W, bias), {"path": path, "kind": "head", "head": "softmax"}
        if (M := len(head.weight)) < (d := head.weight.shape[1]):
            about["note"] = f"W, (M, d), has fewer rows than columns: give its transpose if M is {d:,}, not {M:,}"
        layer = weights_of(head, about)
    else:
        raise SourceError(f"{kind.what} is not an output layer: {INSTEAD}")
    if options.get("vocab") == "tokenizer" and layer.own_tokens is not None:
        part = slice(layer.own_tokens)
        layer = replace(layer, weight=layer.weight[part], bias=None if layer.bias is None else layer.bias[part])
    return layer


def check_bias(sources: Iterable[Any], bias: str | None) -> None:
    """Refuse a bias that none of the sources takes."""
    kinds = [find(str(each) if isinstance(each, Path) else each) for each in sources]
    if bias is not None and not {"array file", "array", "states"} & {key for key in KINDS if KINDS[key] in kinds}:
        what = " and ".join(dict.fromkeys(kind.what for kind in kinds))
        raise ConfigurationError(Parameter("bias"), f" does not apply to {what}, but to W as an array or in a file")


def _of_opened(source: Source) -> OutputWeights:
    """Return the checked output layer of an opened model, or an opened matrix of kind ``"matrix"`` as W."""
    about = source.description
    if isinstance(source, MatrixSource) and about["kind"] == "matrix":
        return weights_of(
            Softmax.of(torch.cat([torch.from_numpy(each.log_probs.copy()) for each in source.blocks()])), about
        )
    if not isinstance(source, ModelOnText):
        raise SourceError(f"{about['path']} is not an output layer: {INSTEAD}")
    tied = None
    if isinstance(source.model, HuggingFaceModel):
        tied = source.model.tied
    elif isinstance(source.model, RunModel):
        tied = source.model.run.model.config.tie_embeddings
    return weights_of(source.head, about, tied=tied, tokenizer=None if source.text is None else source.text.tokenizer)
