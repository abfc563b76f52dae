"""A Hugging Face causal language model, measured on a text through its own tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import ConfigurationError, SourceError
from ...files import sha256_bytes, sha256_file
from ...full_precision import full_precision
from ...spectrum import EPS, Precision, precision
from ..base import Block, Bound, FactorRows, HeadFunction, Source, Work
from . import hf_folder, hf_model
from .hf_head import (
    ROUNDINGS,
    SAMPLE,
    FinalNorm,
    OutputLayer,
    bound_of,
    check_logits,
    final_norm,
    full_precision_layer,
    log_partition,
    transform,
)
from .hf_text import RunningText, Tokenizer, read_text
from .hidden_states import HiddenStates
from .windows import Windows

DEFAULT_CONTEXT_LENGTH = 1024
"""Tokens of a window when the model can take more: GPT-2's, and the cost of attention grows with it."""
TOKENS_AT_ONCE = 4096
"""Of a batch of windows, when nobody says otherwise."""
LEAST_ROWS = 192
"""Of a block: its product reads all of W, and fewer rows would wait for the memory."""
VOCABULARIES = ("both", "model", "tokenizer")


@dataclass(frozen=True, kw_only=True)
class HuggingFaceOptions:
    """How a Hugging Face model is read."""

    revision: str | None = None
    """Branch, tag or commit on the hub."""
    context_length: int | None = None
    """Tokens of a window; by default the model's own limit, at most `DEFAULT_CONTEXT_LENGTH`."""
    stride: int | None = None
    """Tokens between the starts of windows; by default half a window. Each context has length − stride + 1 or more."""
    batch_size: int | None = None
    """Windows encoded at once; by default about `TOKENS_AT_ONCE` tokens."""
    vocab: str = "both"
    """Whose tokens are the columns where the output layer is padded: ``"model"``, ``"tokenizer"``, or ``"both"``."""
    precise: bool = False
    """Whether the output layer is computed in float64 instead of float32."""
    dataset: str | None = None
    """A data set of the hub, ``NAME`` or ``NAME:CONFIGURATION``, instead of a corpus."""
    allow_pickle: bool = False
    """Whether pickled weights may be read: numbers only, no code."""

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        if self.vocab not in VOCABULARIES:
            raise ConfigurationError(f"unknown vocabulary {self.vocab!r}; it is one of {', '.join(VOCABULARIES)}")
        for name in ("context_length", "stride", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}")


class _Model:
    """A model on a text: what is known of it without its weights, and the rest when it is asked for."""

    def __init__(
        self,
        path: Path,
        text: RunningText,
        *,
        contexts: int | None,
        dtype: str,
        device: str,
        options: HuggingFaceOptions,
    ) -> None:
        self.path, self.device = path, torch.device(device)
        self.pickled = hf_folder.check_weights(path, allow_pickle=options.allow_pickle)
        self.skeleton = hf_model.skeleton(path)
        shape = hf_model.output_layer(self.skeleton, path).weight.shape
        self.vocab_size, self.embedding_size = int(shape[0]), int(shape[1])
        self.body_dtype = _body_dtype(dtype, self.skeleton.config)
        self.head_dtype = "float64" if options.precise or self.body_dtype == "float64" else "float32"
        self.tokenizer = Tokenizer(path)
        self.ids = self.tokenizer.encode(text.text, vocab_size=self.vocab_size)
        self.windows = _windows(len(self.ids), self.skeleton.config, options)
        self.batch_size = options.batch_size or max(1, TOKENS_AT_ONCE // self.windows.context_length)
        available = self.windows.contexts
        if contexts is not None and not 1 <= contexts <= available:
            raise SourceError(f"--contexts must be between 1 and the {available:,} of this text, not {contexts:,}")
        self.contexts = contexts or available

    @cached_property
    def body(self) -> nn.Module:
        """The model with its weights, found to be causal."""
        dtype = hf_model.BODY_DTYPES[self.body_dtype]
        return hf_model.load(self.path, dtype=dtype, device=self.device, pickled=self.pickled)

    @cached_property
    def linear(self) -> nn.Linear:
        """The model's own output layer."""
        return hf_model.output_layer(self.body, self.path)

    @cached_property
    def layer(self) -> OutputLayer:
        """The output layer, found to make the model's own logits."""
        layer = full_precision_layer(self.body, self.linear, dtype=hf_model.BODY_DTYPES[self.head_dtype])
        hidden, logits = self._try(self._sample)
        eps = max(EPS[self.body_dtype], EPS[self.head_dtype])
        self.logit_difference = check_logits(layer, hidden, logits, eps=eps, what=str(self.path))
        self._check_causal(hidden)
        return layer

    @cached_property
    def norm(self) -> FinalNorm | None:
        """The LayerNorm before the output layer."""
        hidden, _ = self._try(self._sample)
        return final_norm(self.body, lambda: self._try(self._sample), hidden, eps=EPS[self.body_dtype])

    @cached_property
    def hidden(self) -> HiddenStates:
        """H of all contexts."""
        _ = self.layer
        return HiddenStates(
            lambda ids, mask: hf_model.final_hidden(self.body, self.linear, ids, mask),
            self.ids,
            self.windows,
            contexts=self.contexts,
            size=self.embedding_size,
            dtype=hf_model.BODY_DTYPES[self.body_dtype],
            batch_size=self.batch_size,
        )

    @property
    def _sample(self) -> Tensor:
        return self.ids[: min(SAMPLE, self.windows.context_length)]

    def _try(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return hf_model.hidden_and_logits(self.body, self.linear, ids)

    def _check_causal(self, hidden: Tensor) -> None:
        """Refuse a model whose hidden states know the tokens after them."""
        changed = self._sample.clone()
        changed[-1] = (changed[-1] + 1) % self.vocab_size
        others, _ = self._try(changed)
        before, after = hidden[:-1].double(), others[:-1].double()
        # The same products on the same numbers differ by roundoff at most: what looks ahead moves by more.
        if float((before - after).norm()) > ROUNDINGS * EPS[self.body_dtype] * float(before.norm()):
            raise SourceError(
                f"{self.path} looks ahead: its hidden states change with the tokens after them, so it is an encoder; "
                "only causal (decoder-only) language models can be measured"
            )


@final
class HuggingFaceSource(Source):
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

    def __init__(self, model: _Model, text: RunningText, path: str, options: HuggingFaceOptions) -> None:
        self._model, self._text, self._options = model, text, options
        self._columns = model.vocab_size
        if options.vocab == "tokenizer":
            self._columns = min(self._columns, model.tokenizer.size)
        self.embedding_size = model.embedding_size
        self.dtype = model.head_dtype
        first = model.windows.minimum
        self.targets = model.ids[first : first + model.contexts].numpy()
        self.shape = (model.contexts, self._columns)
        self.description = {
            "path": path,
            "kind": "hugging-face",
            "head": "softmax" if transform(model.skeleton.config)[1] is None else "soft-capped softmax",
            "corpus": text.name,
            "split": text.split,
            "architecture": type(model.skeleton).__name__,
            "revision": options.revision,
            "body_dtype": model.body_dtype,
            "context_length": model.windows.context_length,
            "stride": model.windows.stride,
            "least_context": model.windows.minimum,
        }

    @property
    def precision(self) -> Precision:
        """That of the output layer: whatever the body rounded is in the hidden states, and part of the matrix."""
        return precision(self.dtype)

    @cached_property
    def bound(self) -> Bound:  # type: ignore[override]
        """What algebra says of log P, and what a final LayerNorm makes of it."""
        return bound_of(self.layer, self._model.norm, exact_norm=EPS[self._model.body_dtype] <= EPS["float32"])

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the weights and the text, and all settings that move a number."""
        model = self._model
        weights = sorted(file for pattern in ("*.safetensors", "*.bin") for file in model.path.glob(pattern))
        return {
            "model": sha256_bytes("".join(map(sha256_file, weights)).encode()),
            "config": sha256_file(model.path / hf_folder.CONFIG),
            "corpus": self._text.sha256,
            "tokens": sha256_bytes(model.ids.numpy().tobytes()),
            "windows": f"{model.windows.context_length} {model.windows.stride}",
            "body": model.body_dtype,
        }

    @property
    def layer(self) -> OutputLayer:
        """The output layer, of the tokens that are columns."""
        layer = self._model.layer
        bias = None if layer.bias is None else layer.bias[: self._columns]
        return replace(layer, weight=layer.weight[: self._columns], bias=bias)

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
        log_linear = transform(model.skeleton.config)[1] is None
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
            yield model.ids[window.start : window.start + window.length]

    def encode(self) -> None:
        """Make the hidden states of all contexts."""
        self.hidden(0, self.shape[0])

    def hidden(self, start: int, stop: int) -> Tensor:
        """Return the hidden states of some contexts, (n, d), in the body's type."""
        return self._model.hidden.rows(start, stop)

    def rows_at_once(self) -> int:
        """Return how many rows fill one block, at least `LEAST_ROWS`."""
        return min(self.shape[0], max(LEAST_ROWS, super().rows_at_once()))

    def blocks(self, rows: int | None = None, *, wanted: Callable[[int], bool] = lambda start: True) -> Iterator[Block]:
        """Yield log P by blocks of contexts; unwanted ones cost nothing."""
        for start, hidden in self._wanted(rows or self.rows_at_once(), wanted):
            with full_precision():
                yield Block(start, torch.log_softmax(self.layer.logits(hidden), -1).cpu().numpy())

    def factors(self) -> FactorRows | None:
        """Return X = [sH, s, −log Z] and Y = [W, b, 1], s the logits' scale; log Z is streamed."""
        if transform(self._model.skeleton.config)[1] is not None:
            return None
        layer = self.layer
        columns = [layer.weight, *([] if layer.bias is None else [layer.bias.unsqueeze(1)])]
        right = torch.cat([*columns, torch.ones_like(layer.weight[:, :1])], 1).cpu().double().numpy()
        return FactorRows(lambda wanted: self._left(layer, wanted), right)

    def _left(self, layer: OutputLayer, wanted: Callable[[int], bool]) -> Iterator[NDArray[np.float64]]:
        for _, hidden in self._wanted(self.rows_at_once(), wanted):
            with full_precision():
                log_partitions = log_partition(layer.logits(hidden))
                scaled = hidden.to(layer.weight) * layer.scale
                beside = [] if layer.bias is None else [torch.full_like(log_partitions, layer.scale)]
                yield torch.cat([scaled, *beside, -log_partitions], 1).cpu().double().numpy()

    def _wanted(self, rows: int, wanted: Callable[[int], bool]) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, self.shape[0], rows):
            if wanted(start):
                yield start, self.hidden(start, start + rows)

    def head(self) -> HeadFunction:
        """Return the output layer and its inputs."""
        layer = self.layer
        return HeadFunction(
            log_prob=lambda hidden: torch.log_softmax(layer.logits(hidden), -1),
            hidden=lambda rows, wanted: self._wanted(rows, wanted),
            weight=layer.weight if layer.log_linear else None,
        )

    def variants(self) -> Mapping[str, Source]:
        """Return the matrix of the tokenizer's tokens alone, renormalized, where the output layer has more rows."""
        if self._options.vocab != "both" or self._model.tokenizer.size >= self._columns:
            return {}
        view = copy.copy(self)
        view.__dict__.pop("bound", None)
        view._columns = self._model.tokenizer.size
        view.shape = (self.shape[0], view._columns)
        return {"vocab_tokenizer": view}

    def tokens(self, ids: list[int]) -> list[str]:
        """Return each token as text."""
        return self._model.tokenizer.tokens(ids)

    def text_before(self, row: int, length: int) -> str:
        """Return the text of the ``length`` tokens before the one that a row predicts."""
        end = self._model.windows.minimum + row
        return self._model.tokenizer.text(self._model.ids[max(0, end - length) : end].tolist())


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
    model = _Model(path, text, contexts=contexts, dtype=dtype, device=device, options=options)
    return HuggingFaceSource(model, text, name, options)


def _body_dtype(dtype: str, config: object) -> str:
    found = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.") if dtype == "auto" else dtype
    if found not in hf_model.BODY_DTYPES:
        raise ConfigurationError(
            f"unknown dtype {found!r}; a Hugging Face model runs in {', '.join(hf_model.BODY_DTYPES)} or auto"
        )
    return found


def _windows(tokens: int, config: object, options: HuggingFaceOptions) -> Windows:
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)  # type: ignore[attr-defined]
    length = options.context_length or min(limit or DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH)
    if limit and length > limit:
        raise ConfigurationError(f"--context-length {length:,} is more than the {limit:,} tokens the model can read")
    return Windows(tokens, length, options.stride or max(1, length // 2))
