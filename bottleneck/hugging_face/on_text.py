"""A Hugging Face causal language model on a text that its own tokenizer encodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.files import sha256_bytes
from ..core.full_precision import full_precision
from ..core.options import HuggingFaceOptions
from ..corpora.batches import texts_in
from ..corpora.own import given_data
from ..errors import ConfigurationError, Parameter, SourceError
from ..heads import Head, RankBound, Softmax
from ..language_models.checked_product import SAMPLE
from ..language_models.llama_cpp import KldFile, is_kld
from ..language_models.on_text import Ids, ModelOnText, joined
from ..language_models.source import Cost
from ..spectrum import EPS
from ..spectrum.blocks import as_array
from . import folder, gguf, loading
from .checks import CheckedHead, bound_of, check_head, unloaded_head
from .loading import BODY_DTYPES, HuggingFaceModel
from .pretrained import PRETRAINED
from .text import RunningText, Tokens, read_ids, read_text
from .tokenizer import TokenizedText, Tokenizer, read_tokenizer, wrap_tokenizer
from .windows import HiddenStates, Windows

DEFAULT_CONTEXT_LENGTH = 1024
"""Tokens of a window if the model can take more: the limit of GPT-2, because the cost of attention grows with it."""
FIRST = 50
"""Tokens of a .kld file of which the tokenizer is asked what begins a text."""
TOKENS_AT_ONCE = 4096
"""Default number of tokens of a batch of windows."""
LIMITS = ("max_position_embeddings", "max_seq_len")
"""Configuration keys of the most tokens that a model can read; MPT's is the second."""
POSITIONS = ("wpe", "position_embeddings", "embed_positions", "positions_embed")
"""Names of tables with an embedding for each position."""


@final
class HuggingFaceOnText(ModelOnText):
    """The final hidden states of a text's tokens, each with the tokens of its window before it as context.

    The body runs once, in its own type; the output layer is a `Softmax` in float32 or float64. Weights are loaded when
    they are needed.

    Args:
        model: the model.
        text: the text that the model reads.
        options: options of Hugging Face models.
        path: name of the model as the caller gave it.

    Raises:
        SourceError: for a text that is too short.
        ConfigurationError: for a setting out of range.
    """

    def __init__(self, model: HuggingFaceModel, text: Tokens, *, options: HuggingFaceOptions, path: str) -> None:
        self.model, self._text, self._options = model, text, options
        self._windows = _windows(text, model.module, options)
        self.contexts, first = len(self._windows.places), self._windows.least
        self.dtype = "float64" if options["precise"] or model.dtype == "float64" else "float32"
        places, tokenizer = self._windows.places.numpy(), text.tokenizer
        if tokenizer is not None:
            self.text = TokenizedText(text.ids.numpy(), places, tokenizer, text.starts.numpy())
            both = options["vocab"] == "both" and isinstance(self.skeleton, Softmax)
            self.own_tokens = tokenizer.size if both else None
            self.columns = tokenizer.size if options["vocab"] == "tokenizer" else None
        targets = text.ids.numpy()[places]
        self.targets = targets if targets.max() < self.shape[1] else None
        prefix = text.prefix.tolist()
        name = "softmax" if getattr(self.skeleton, "soft_cap", None) is None else "soft-capped softmax"
        self.description = {
            "path": path,
            "kind": "hugging-face",
            "head": model.module.spec["head"] if hasattr(model.module, "spec") else name,
            "corpus": text.name,
            "split": text.split,
            "architecture": type(model.module).__name__,
            "revision": options["revision"],
            "body_dtype": model.dtype,
            "context_length": self.longest_input + len(prefix),
            "stride": self.longest_input - first + 1,
            "least_context": first,
            "prefix": tokenizer.tokens(prefix) if tokenizer else prefix,
        }

    @cached_property
    def skeleton(self) -> Head:
        """The output layer without its weights, from the configuration."""
        return unloaded_head(self.model.module, BODY_DTYPES[self.dtype])

    @cached_property
    def checked_head(self) -> CheckedHead:
        """The output layer, after a check that it makes the model's own logits and that the body is causal."""
        sample = max(self.windows(), key=len)[: len(self._text.prefix) + SAMPLE]
        return check_head(self.model, sample, BODY_DTYPES[self.dtype])

    @property
    def full_head(self) -> Head:
        """The checked output layer."""
        return self.checked_head.head

    @cached_property
    def bound(self) -> RankBound:  # type: ignore[override]
        """The algebraic bound on the rank of log P, with the effect of a final LayerNorm."""
        return bound_of(self.checked_head, exact_norm=EPS[self.model.dtype] <= EPS[self.dtype])

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the weights and the text, and all settings that change a number."""
        return {
            **self.model.identity,
            "corpus": self._text.sha256,
            "tokens": sha256_bytes(self._text.ids.numpy().tobytes()),
            "windows": f"{self.description['context_length']} {self.description['stride']}",
            "prefix": " ".join(map(str, self._text.prefix.tolist())),
            "body": self.model.dtype,
        }

    @property
    def vocabularies(self) -> dict[str, int | None]:
        """Rows of the output layer and tokens of the tokenizer."""
        tokenizer = self._text.tokenizer
        return {"model": self.skeleton.vocab_size, "tokenizer": None if tokenizer is None else tokenizer.size}

    @property
    def body_cost(self) -> Cost:
        """Two operations for each parameter of the body and each token read, with overlapping windows read in full."""
        module, head = self.model.module, self.skeleton
        layer = loading.output_layer(module)
        parameters = sum(parameter.numel() for parameter in module.parameters())
        body = parameters - sum(each.numel() for each in {module.get_input_embeddings().weight, layer.weight})
        body_type, head_type = (BODY_DTYPES[name] for name in (self.model.dtype, self.dtype))
        size = (parameters + self.contexts * head.hidden_size) * body_type.itemsize
        if head_type != body_type:
            size += layer.weight.numel() * head_type.itemsize
        return Cost(2.0 * body * sum(map(len, self.windows())), size)

    def windows(self) -> Iterator[Tensor]:
        """Yield the ids of each window that the body reads, including overlaps."""
        for start, length in zip(self._windows.starts, self._windows.lengths, strict=True):
            yield torch.cat([self._text.prefix, self._text.ids[start : start + length]])

    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the hidden states of ranges of contexts, (n, d) each, in the head's type."""
        return (self._states.rows(rows.start, rows.stop).to(self.full_head.weight) for rows in ranges)

    @cached_property
    def _states(self) -> HiddenStates:
        _ = self.full_head  # the model is checked before it runs over the whole text
        return HiddenStates(
            self._encode,
            self._text.ids,
            self._windows,
            size=self.skeleton.hidden_size,
            dtype=BODY_DTYPES[self.model.dtype],
            batch_size=self._options["batch_size"] or max(1, TOKENS_AT_ONCE // self.longest_input),
        )

    def _encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        before = self._text.prefix.expand(len(ids), -1)
        ids, mask = torch.cat([before, ids], 1), torch.cat([torch.ones_like(before), mask], 1)
        return loading.final_hidden(self.model.body, ids, mask)[:, before.shape[1] :]

    @cached_property
    def longest_input(self) -> int:
        """Largest number of tokens that a window holds, without its special tokens."""
        return int(self._windows.lengths.max())

    def _keep_first(self, contexts: int) -> None:
        super()._keep_first(contexts)
        self._windows = self._windows.first(contexts)

    @property
    def ids(self) -> Ids:
        """All tokens of the text, (N,)."""
        return self._text.ids.numpy()

    def next_log_probs(self, histories: Ids) -> Callable[[Ids], NDArray[Any]]:
        """Return a function from a future to log P of the token after each of n histories with it, (n, M).

        It raises `SourceError` for more tokens than a window holds.
        """

        def after(future: Ids) -> NDArray[Any]:
            ids = torch.from_numpy(joined(histories, future))
            if ids.shape[1] > self.longest_input:
                raise SourceError(
                    f"a history and a future have {ids.shape[1]:,} tokens together, more than the "
                    f"{self.longest_input:,} that the model reads: give shorter ones"
                )
            hidden = self._encode(ids, torch.ones_like(ids))[:, -1]
            with full_precision():
                return as_array(self.head.log_prob(hidden.to(self.head.weight)))

        return after


def _limit(module: Any) -> int | None:
    """Return the most tokens that a model can read; ``None`` for no limit, which XLNet's configuration writes as −1.

    A table of positions with padding, such as RoBERTa's, has no row for a token before the one after its padding.
    """
    limits = [getattr(module.config.get_text_config(), name, None) for name in LIMITS]
    for name, part in module.named_modules():
        if name.rpartition(".")[2] in POSITIONS and isinstance(part, nn.Embedding):
            limits.append(part.num_embeddings - (-1 if part.padding_idx is None else part.padding_idx) - 1)
    return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=None)


def _windows(text: Tokens, module: Any, options: HuggingFaceOptions) -> Windows:
    """Return the windows of a text that a model reads."""
    limit, prefix = _limit(module), len(text.prefix)
    if not text.is_running:
        windows = Windows(text.starts, text.places(1), 1)
        longest = int(windows.lengths.max())
        allowed = min(options["context_length"] or longest, options["stride"] or longest, limit or longest)
        if allowed < longest:
            raise ConfigurationError(
                f"each row of ids (B, L) is a text of its own, read in one window of {longest:,} tokens, and "
                f"{allowed:,} are allowed: give shorter rows, or one text as ids (N,)"
            )
        return windows
    length = options["context_length"] or min(limit or DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH)
    stride = options["stride"] or max(1, (length - prefix) // 2)
    if limit and length > limit:
        raise ConfigurationError(
            Parameter("context_length"), f" {length:,} is more than the {limit:,} tokens the model can read"
        )
    if length <= prefix:
        raise ConfigurationError(
            Parameter("context_length"),
            f" {length} leaves no room for text after the {prefix} special tokens that begin a window: "
            "give a larger one, or ",
            Parameter("bos", "off"),
        )
    if stride > length:
        raise ConfigurationError(
            Parameter("stride"),
            " must be between 1 and ",
            Parameter("context_length"),
            f", not {stride:,} with {length:,}",
        )
    length -= prefix
    if len(text.ids) <= length:
        raise SourceError(
            f"the text has {len(text.ids):,} tokens, and one window of {length:,} and the token after it need more: "
            "give a longer text, or a smaller ",
            Parameter("context_length"),
        )
    stride = min(stride, length)
    least = length - stride + 1
    return Windows(torch.arange(0, len(text.ids) - least, stride), text.places(least), least)


class Saved(NamedTuple):
    """A saved model whose weights are read when they are needed, and how its tokenizer is read."""

    model: HuggingFaceModel
    tokenizer: Callable[[], Tokenizer | None]
    quantization: str | None = None
    """Types of the tensors of a GGUF file."""


def saved(name: str, *, dtype: str, device: str = "cpu", revision: str | None, allow_pickle: bool) -> Saved:
    """Return a model by its folder, its GGUF file or its name."""
    folder.import_transformers()
    path = PRETRAINED[name].path() if name in PRETRAINED else Path(name)
    if file := gguf.find(path):
        header = gguf.read_header(file)
        model = gguf.gguf_model(file, header, dtype=dtype, device=device)
        return Saved(model, lambda: gguf.gguf_tokenizer(file, header), header.quantization)
    if not path.exists():
        path = folder.fetch(name, revision=revision, allow_pickle=allow_pickle)
    model = loading.saved_model(path, dtype=dtype, device=device, allow_pickle=allow_pickle)
    return Saved(model, lambda: read_tokenizer(path))


def open_saved(
    name: str,
    *,
    data: Any = None,
    split: str = "test",
    dtype: str = "float32",
    device: str = "cpu",
    hugging_face: HuggingFaceOptions,
) -> HuggingFaceOnText:
    """Open a model by its folder, its GGUF file or its name; its weights are read when they are needed."""
    revision, allow_pickle = hugging_face["revision"], hugging_face["allow_pickle"]
    given = _given(data, split, hugging_face)  # what cannot be read is refused before the model is built
    found = saved(name, dtype=dtype, device=device, revision=revision, allow_pickle=allow_pickle)
    tokens = _tokens(given, found.tokenizer, found.model, options=hugging_face)
    source = HuggingFaceOnText(found.model, tokens, options=hugging_face, path=name)
    if found.quantization:
        source.description = {**source.description, "quantization": found.quantization}
    return source


def open_loaded(
    model: nn.Module,
    *,
    data: Any = None,
    tokenizer: Any = None,
    split: str = "test",
    dtype: str = "float32",
    hugging_face: HuggingFaceOptions,
) -> HuggingFaceOnText:
    """Open a loaded causal language model of transformers, which is not changed; see `Opening` for ``data``."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise SourceError(
            f"{type(model).__name__} is a sequence-to-sequence model; only causal (decoder-only) language models can "
            "be measured"
        )
    loaded = loading.loaded_model(model, dtype=dtype)
    encoder = None if tokenizer is None else wrap_tokenizer(tokenizer)
    tokens = _tokens(_given(data, split, hugging_face), lambda: encoder, loaded, options=hugging_face)
    return HuggingFaceOnText(loaded, tokens, options=hugging_face, path=loaded.name)


def _given(data: Any, split: str, options: HuggingFaceOptions) -> KldFile | list[NDArray[Any]] | RunningText:
    """Return what ``data`` is or names: a .kld file, the ids of texts, or a text; see `given_data` and `read_text`."""
    if is_kld(data):
        return KldFile(data)
    found: Any = given_data(data)
    return found if isinstance(found, list) else read_text(found or data, split, dataset=options["dataset"])


def _tokens(
    given: KldFile | list[Any] | RunningText,
    encoder: Callable[[], Tokenizer | None],
    model: HuggingFaceModel,
    *,
    options: HuggingFaceOptions,
) -> Tokens:
    """Return what is given as the tokens of a model."""
    if isinstance(given, KldFile):
        file, tokenizer = given, encoder()
        bos, size = options["bos"], model.input_size
        first = tokenizer.text(file.tokens[0, :FIRST].tolist()) if tokenizer else ""
        prefix = tokenizer.encode(first, bos=bos, vocab_size=size)[1].tolist() if tokenizer else []
        texts: Any = texts_in(file.batches(prefix))
        return replace(read_ids(texts, tokenizer, vocab_size=size, window=file.tokens.shape[1]), name=str(file.path))
    if isinstance(given, list):
        limit = min(_limit(model.module) or DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH)
        window = None if options["context_length"] or options["stride"] else limit
        tokenizer = None
        with suppress(SourceError):  # ids are measured without it
            tokenizer = encoder()
        return read_ids(given, tokenizer, vocab_size=model.input_size, window=window)
    if (tokenizer := encoder()) is None:
        raise SourceError(
            f"a text needs the model's tokenizer, and {model.name} has none: give data=token ids, or, for a loaded "
            "model, tokenizer=AutoTokenizer.from_pretrained(…)"
        )
    return given.encode(tokenizer, bos=options["bos"], vocab_size=model.input_size)
