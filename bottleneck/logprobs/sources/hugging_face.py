"""A Hugging Face causal language model, measured on a text through its own tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...files import sha256_bytes, sha256_file
from ...spectrum import EPS, Precision, precision
from ...spectrum.inspection import MASK
from ..base import Bound, Source, Work
from . import hf_folder, hf_model
from .hf_head import FinalNorm, OutputLayer, bound_of, soft_cap_of
from .hf_on_text import HuggingFaceOptions, ModelOnText
from .hf_text import RunningText, TokenizedText, read_text
from .model import ModelSource

LEAST_ROWS = 192
"""Of a block: its product reads all of W, and fewer rows would wait for the memory."""


@final
class HuggingFaceSource(ModelSource):
    """The log-probabilities of a text's tokens, each with the tokens of its window before it as context.

    The body runs once, in its own type; the output layer is computed anew from its hidden states, in float32 or
    float64. Nothing is loaded before it is asked for.

    Args:
        model: what `open_hugging_face` makes.
        text: what it is measured on.
        path: as it was named.
        options: how it is read.
    """

    targets: NDArray[np.int64]

    def __init__(self, model: ModelOnText, text: RunningText, path: str, options: HuggingFaceOptions) -> None:
        self._model, self._text, self._options = model, text, options
        self._columns = model.vocab_size
        if options.vocab == "tokenizer":
            self._columns = min(self._columns, model.tokenizer.size)
        self.embedding_size = model.embedding_size
        self.dtype = model.head_dtype
        first = model.windows.minimum
        self.targets = model.ids[first : first + model.contexts].numpy()
        self.text = TokenizedText(model.ids.numpy(), model.tokenizer, first=first)
        self.shape = (model.contexts, self._columns)
        self.description = {
            "path": path,
            "kind": "hugging-face",
            "head": "softmax" if soft_cap_of(model.skeleton.config) is None else "soft-capped softmax",
            "corpus": text.name,
            "split": text.split,
            "architecture": type(model.skeleton).__name__,
            "revision": options.revision,
            "body_dtype": model.body_dtype,
            "context_length": model.windows.context_length + len(model.prefix),
            "stride": model.windows.stride,
            "least_context": model.windows.minimum,
            "prefix": model.tokenizer.tokens(model.prefix.tolist()),
        }

    @property
    def precision(self) -> Precision:
        """That of the output layer: whatever the body rounded is in the hidden states, and part of the matrix."""
        return precision(self.dtype)

    @cached_property
    def bound(self) -> Bound:  # type: ignore[override]
        """What algebra says of log P, and what a final LayerNorm makes of it."""
        return bound_of(self.layer, self._model.norm, exact_norm=EPS[self._model.body_dtype] <= EPS[self.dtype])

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the weights and the text, and all settings that move a number."""
        model = self._model
        return {
            "model": sha256_bytes("".join(map(sha256_file, model.weights)).encode()),
            "config": sha256_file(model.path / hf_folder.CONFIG),
            "corpus": self._text.sha256,
            "tokens": sha256_bytes(model.ids.numpy().tobytes()),
            "windows": f"{model.windows.context_length} {model.windows.stride}",
            "prefix": " ".join(map(str, model.prefix.tolist())),
            "body": model.body_dtype,
        }

    @property
    def layer(self) -> OutputLayer:
        """The output layer, of the tokens that are columns."""
        layer = self._model.layer
        bias = None if layer.bias is None else layer.bias[: self._columns]
        if bias is not None:  # a token may be masked by a large number instead of −∞
            bias = bias.where(bias * layer.scale >= MASK + bias.max() * layer.scale, -torch.inf)
        return replace(layer, weight=layer.weight[: self._columns], bias=bias)

    @property
    def log_linear(self) -> OutputLayer | None:
        """The output layer, where no function is applied to its logits."""
        layer = self.layer
        return layer if layer.soft_cap is None else None

    @property
    def norm(self) -> FinalNorm | None:
        """The LayerNorm before the output layer, if there is one."""
        return self._model.norm

    @property
    def logit_difference(self) -> float:
        """The largest difference between a logit of ours and the model's own, on a sample."""
        _ = self._model.layer
        return self._model.logit_difference

    @property
    def vocabularies(self) -> dict[str, int]:
        """Rows of the output layer and tokens of the tokenizer."""
        return {"model": self._model.vocab_size, "tokenizer": self._model.tokenizer.size}

    def work(self) -> Work:
        """Return two operations a parameter and token read, those of overlapping windows read again."""
        model = self._model
        tokens = sum(map(len, self.windows()))
        parameters = sum(parameter.numel() for parameter in model.skeleton.parameters())
        layer = hf_model.output_layer(model.skeleton, model.path)
        embeddings = {model.skeleton.get_input_embeddings().weight, layer.weight}  # type: ignore[operator]
        body = parameters - sum(embedding.numel() for embedding in embeddings)
        head = 2.0 * self.shape[0] * self.shape[1] * model.embedding_size
        body_type, head_type = (hf_model.BODY_DTYPES[name] for name in (model.body_dtype, model.head_dtype))
        size = parameters * body_type.itemsize + self.shape[0] * model.embedding_size * body_type.itemsize
        if head_type != body_type:
            size += layer.weight.numel() * head_type.itemsize
        log_linear = soft_cap_of(model.skeleton.config) is None
        columns = model.embedding_size + 1 + int(layer.bias is not None)
        return Work(2.0 * body * tokens + head, size, columns if log_linear else None)

    @property
    def body(self) -> nn.Module:
        """The model itself."""
        return self._model.body

    def windows(self) -> Iterator[Tensor]:
        """Yield the ids of each window that the body reads, those of overlapping ones again."""
        model = self._model
        for number in range((model.contexts - 1) // model.windows.stride + 1):
            window = model.windows.window(number, model.contexts)
            yield torch.cat([model.prefix, model.ids[window.start : window.start + window.length]])

    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the hidden states of ranges of contexts, (n, d) each, in the body's type."""
        return (self._model.hidden.rows(rows.start, rows.stop) for rows in ranges)

    def rows_at_once(self) -> int:
        """Return how many rows fill one block, at least `LEAST_ROWS`."""
        return min(self.shape[0], max(LEAST_ROWS, super().rows_at_once()))

    def variants(self) -> Mapping[str, Source]:
        """Return the matrix of the tokenizer's tokens alone, renormalized, where the output layer has more rows."""
        if self._options.vocab != "both" or self._model.tokenizer.size >= self._columns:
            return {}
        only = replace(self._options, vocab="tokenizer")
        return {"vocab_tokenizer": HuggingFaceSource(self._model, self._text, self.description["path"], only)}


def open_hugging_face(
    name: str,
    *,
    data: str | None = None,
    split: str = "test",
    contexts: int | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    options: HuggingFaceOptions | None = None,
) -> HuggingFaceSource:
    """Open a model by its folder or its name on the hub.

    Args:
        name: a folder that ``save_pretrained`` wrote, or a hub id.
        data: a corpus or a ``.txt`` file; by default the built-in corpus.
        split: of the corpus.
        contexts: only the first so many.
        dtype: what the body runs in: ``"float32"``, ``"bfloat16"``, ``"float16"``, ``"float64"``, or ``"auto"`` for
            what its configuration says.
        device: where it runs.
        options: the rest.

    Raises:
        SourceError: for what is no causal language model, lacks weights, or cannot be had.
        CorpusError: for a text that is not there.
        ConfigurationError: for a setting out of range, or without the package transformers.
    """
    options = options or HuggingFaceOptions()
    hf_folder.import_transformers()
    path = Path(name)
    if not path.exists():
        path = hf_folder.fetch(name, revision=options.revision, allow_pickle=options.allow_pickle)
    hf_folder.read_config(path)
    text = read_text(data, split, dataset=options.dataset)
    model = ModelOnText(path, text, contexts=contexts, dtype=dtype, device=device, options=options)
    return HuggingFaceSource(model, text, name, options)
