"""A causal language model of transformers, whose weights are read when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from ..core.files import sha256_bytes, sha256_file
from ..core.tensor_file import digest
from ..errors import ConfigurationError, SourceError
from ..heads import Head, RankBound
from ..language_models.checked_product import weight_of
from ..language_models.layer import OutputWeights, masked_bias
from ..language_models.on_text import Model
from ..language_models.reading import Batch
from ..language_models.source import Cost
from ..spectrum import EPS
from . import folder, gguf, loading
from .checks import CheckedHead, bound_of, check_head, unloaded_head
from .final_norm import final_ellipse
from .loading import BODY_DTYPES, body_dtype, configuring, output_layer
from .pretrained import PRETRAINED
from .tokenizer import Tokenizer, gguf_tokenizer, read_tokenizer, wrap_tokenizer
from .weights import read_weights

LARGEST = {"num_hidden_layers": 10_000, "hidden_size": 2**24, "vocab_size": 2**28}
"""Sizes beyond those of any model; a constructor may take larger ones, or build layers for hours."""
LIMITS = ("max_position_embeddings", "max_seq_len")
"""Configuration keys of the most tokens that a model can read; MPT's is the second."""
POSITIONS = ("wpe", "position_embeddings", "embed_positions", "positions_embed")
"""Names of tables with an embedding for each position."""


@final
class HuggingFaceModel(Model):
    """A causal language model of the package transformers.

    The body runs in its own type; the output layer is computed in float32 or float64.

    Args:
        module: the model; that of a folder has no weights until `body` is read.
        name: name of the model.
        tokenizer: returns its tokenizer, or ``None``, or raises `SourceError`.
        path: folder or GGUF file of a saved model.
        files: the files of its weights.
        device: device that a saved model runs on; a loaded one stays on its own.
        quantization: types of the tensors of a GGUF file.
    """

    def __init__(
        self,
        module: Any,
        *,
        name: str,
        tokenizer: Callable[[], Tokenizer | None] = lambda: None,
        path: Path | None = None,
        files: list[Path] | None = None,
        device: str = "cpu",
        quantization: str | None = None,
    ) -> None:
        self.module, self.name, self.encoder = module, name, tokenizer
        self._path, self.files, self._device = path, files or [], device
        self.body_dtype = next(module.parameters()).dtype
        self._checked: CheckedHead | None = None
        self.compute_in()
        layer = output_layer(module)
        self.tied: bool = getattr(module.get_input_embeddings(), "weight", None) is layer.weight
        """Whether the output embeddings are the input embeddings."""
        soft_cap = getattr(self.skeleton, "soft_cap", None)
        softmax = "softmax" if soft_cap is None else "soft-capped softmax"
        self.about = {"path": name, "kind": "hugging-face", "head": getattr(module, "spec", {"head": softmax})["head"]}
        self.quantization = quantization
        self.revision: str | None = None
        """Revision on the Hugging Face hub that was asked for, of a model that is read from there."""

    def compute_in(self, *, precise: bool = False) -> None:
        """Compute the output layer in float64 if it is to be ``precise`` or the body runs in it, or in float32."""
        self.dtype = "float64" if precise or self.body_type == "float64" else "float32"

    @property
    def body_type(self) -> str:
        """Name of the type that the body runs in."""
        return str(self.body_dtype).removeprefix("torch.")

    @cached_property
    def body(self) -> Any:
        """The model with its weights, which are read when they are first needed; from then on it is `module`."""
        if self._path is not None:
            empty = self.module
            more = {"dtype": self.body_dtype, "generation_config": getattr(empty, "generation_config", None)}
            self.module = loading.load(type(empty), self._path, empty.config, self.files, **more)
            layer = output_layer(self.module)
            if self.tied and layer.weight is not self.module.get_input_embeddings().weight:
                key = next(key for key, part in self.module.named_modules() if part is layer)
                raise SourceError(
                    f"the weights of {self.name} hold an output layer of its own ({key}.weight), and its config.json "
                    "ties it to the input embeddings: set tie_word_embeddings to false"
                )
            self.module.to(self._device).eval()
        return self.module

    @property
    def identity(self) -> Mapping[str, str]:
        """Hashes of the weights and the configuration."""
        if self._path is None:
            config = sha256_bytes(self.module.config.to_json_string().encode())
            return {"model": digest(self.module.state_dict()), "config": config}
        file = self._path / folder.CONFIG
        return {
            "model": sha256_bytes("".join(map(sha256_file, self.files)).encode()),
            **({"config": sha256_file(file)} if file.exists() else {}),
        }

    @property
    def input_size(self) -> int:
        """Number of tokens that the model reads; its output layer may have another number of rows."""
        weight = getattr(self.module.get_input_embeddings(), "weight", None)
        return len(output_layer(self.module).weight if weight is None else weight)

    @property
    def limit(self) -> int | None:
        """The most tokens that the model can read; ``None`` for no limit, which XLNet's configuration writes as −1.

        A table of positions with padding, such as RoBERTa's, has no row for a token before the one after its padding.
        """
        limits = [getattr(self.module.config.get_text_config(), name, None) for name in LIMITS]
        for name, part in self.module.named_modules():
            if name.rpartition(".")[2] in POSITIONS and isinstance(part, nn.Embedding):
                limits.append(part.num_embeddings - (-1 if part.padding_idx is None else part.padding_idx) - 1)
        return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=None)

    @property
    def skeleton(self) -> Head:
        """The output layer without its weights, from the configuration."""
        return unloaded_head(self.module, BODY_DTYPES[self.dtype])

    def head(self, sample: Tensor) -> Head:
        """Return the output layer, after one check that it makes the model's own logits and that the body is causal."""
        if self._checked is None:
            self._checked = check_head(self, sample, BODY_DTYPES[self.dtype])
        return self._checked.head

    @property
    def checked(self) -> CheckedHead:
        """The output layer and what a sample of contexts says of it, after `head`."""
        assert self._checked is not None
        return self._checked

    def bound(self, head: Head) -> RankBound:
        """Return the algebraic bound on the rank of log P, with the effect of a final LayerNorm."""
        return bound_of(self.checked, exact_norm=EPS[self.body_type] <= EPS[self.dtype])

    def layer(self) -> OutputWeights:
        """Return the output layer as its files store it, without the rest of the model."""
        weight, bias, stored = read_weights(self)
        head, tokenizer = unloaded_head(self.module, torch.float32), None
        with suppress(SourceError):  # only names are missing without it
            tokenizer = self.encoder()
        softmax = {"head": getattr(self.module, "spec", {"head": "softmax"})["head"]}
        return OutputWeights(
            weight.detach(),
            None if bias is None else masked_bias(bias.float(), scale=getattr(head, "scale", 1.0)),
            head,
            self.about | softmax | ({"quantization": self.quantization} if self.quantization else {}),
            stored,
            self.tied,
            tokenizer=tokenizer,
            ellipse=lambda: final_ellipse(self),
            unused=() if tokenizer is None else tuple(tokenizer.unused()),
        )

    def cost(self, tokens: int, contexts: int) -> Cost:
        """Return two operations for each parameter of the body and each token read, overlaps included."""
        module, head, layer = self.module, self.skeleton, output_layer(self.module)
        parameters = sum(parameter.numel() for parameter in module.parameters())
        body = parameters - sum(each.numel() for each in {module.get_input_embeddings().weight, layer.weight})
        size = (parameters + contexts * head.hidden_size) * self.body_dtype.itemsize
        if (head_type := BODY_DTYPES[self.dtype]) != self.body_dtype:
            size += layer.weight.numel() * head_type.itemsize
        return Cost(2.0 * body * tokens, size)

    def encode(self, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Return the final hidden states (L, B, d) of a batch."""
        ids, mask = batch.inputs.T, None
        if batch.lengths is not None:
            mask = (torch.arange(ids.shape[1]) < batch.lengths.unsqueeze(1)).long()
        return loading.final_hidden(self.body, ids, mask).transpose(0, 1), None


def unloaded_model(
    kind: Any, config: Any, path: Path, files: list[Path], *, dtype: str, **more: Any
) -> HuggingFaceModel:
    """Return a model of a class and configuration whose weights are read later; ``more`` of `HuggingFaceModel`."""
    with configuring(path), torch.device("meta"):
        for name, limit in LARGEST.items():
            value = getattr(config.get_text_config(), name, None)
            if isinstance(value, int) and not 1 <= value <= limit:
                raise ValueError(f"its {name} is {value}, and 1 to {limit:,} are possible")
        module: Any = kind._from_config(config, dtype=BODY_DTYPES[dtype])
    return HuggingFaceModel(module, name=str(path), path=path, files=files, **more)


def saved_model(
    name: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    revision: str | None = None,
    allow_pickle: bool = False,
) -> HuggingFaceModel:
    """Return a model by its folder, its GGUF file or its name on the Hugging Face hub; its weights are read later."""
    folder.import_transformers()
    path = Path(name) if name not in PRETRAINED or Path(name).exists() else PRETRAINED[name].path()
    fetched = None
    if file := gguf.find(path):
        model = gguf_model(file, dtype=dtype, device=device)
    else:
        if not path.exists():
            path, fetched = folder.fetch(name, revision=revision, allow_pickle=allow_pickle), revision
        config, kind = loading.config_and_class(path)
        files = folder.weight_files(path, allow_pickle=allow_pickle)
        more: Any = {"device": device, "tokenizer": lambda: read_tokenizer(path)}
        model = unloaded_model(kind, config, path, files, dtype=body_dtype(dtype, config.dtype), **more)
    model.about["path"], model.revision = name, fetched
    return model


def gguf_model(file: Path, *, dtype: str = "float32", device: str = "cpu") -> HuggingFaceModel:
    """Return the model in a GGUF file, whose weights are read and dequantized later.

    Raises:
        SourceError: for a model that transformers does not read from GGUF, or with fewer weights than it needs.
    """
    header = gguf.read_header(file)
    with configuring(file), gguf.read_quickly():
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

        config: Any = AutoConfig.from_pretrained(
            file.parent, gguf_file=file.name, trust_remote_code=False, local_files_only=True
        )
        kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        config.tie_word_embeddings = gguf.OUTPUT not in header.types  # transformers ties all of Falcon's and BLOOM's
    more: Any = {"device": device, "quantization": header.quantization}
    if gguf.TOKENS in header.values:
        more["tokenizer"] = lambda: gguf_tokenizer(file, begins=header.begins)
    model = unloaded_model(kind, config, file, [file], dtype=body_dtype(dtype, None), **more)
    needed = sum(parameter.numel() for parameter in model.module.parameters())
    if needed > header.elements:
        raise SourceError(
            f"{file} holds {header.elements:,} weights, and the model that it describes has {needed:,}; {folder.AGAIN}"
        )
    return model


def loaded_model(module: Any, *, dtype: str = "auto", tokenizer: Any = None) -> HuggingFaceModel:
    """Return a model that the caller loaded, whose dtype is its own: float32, the default, is ignored."""
    if getattr(module.config, "is_encoder_decoder", False):
        raise SourceError(
            f"{type(module).__name__} is a sequence-to-sequence model; only causal (decoder-only) language models can "
            "be measured"
        )
    name = str(getattr(module.config, "_name_or_path", "") or type(module).__name__)
    encoder = None if tokenizer is None else wrap_tokenizer(tokenizer)
    model = HuggingFaceModel(module, name=name, tokenizer=lambda: encoder)
    body_dtype(model.body_type, None)
    weight_of(getattr(layer := output_layer(module), "head", layer), name)  # refused before any long work
    if dtype not in ("float32", "auto", model.body_type):
        raise ConfigurationError(
            f"the model is in {model.body_type}, and dtype={dtype!r} was asked for: convert it with "
            f"model.to(torch.{dtype})"
        )
    return model
