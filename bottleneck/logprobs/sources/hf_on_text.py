"""A Hugging Face model on a text: what is known of it without its weights, and the rest when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from ...errors import ConfigurationError, SourceError
from ...spectrum import EPS
from . import hf_folder, hf_model
from .hf_head import ROUNDINGS, SAMPLE, FinalNorm, OutputLayer, final_norm, full_precision_layer, logit_difference
from .hf_text import RunningText, Tokenizer
from .hidden_states import HiddenStates
from .windows import Windows

DEFAULT_CONTEXT_LENGTH = 1024
"""Tokens of a window when the model can take more: GPT-2's, and the cost of attention grows with it."""
TOKENS_AT_ONCE = 4096
"""Of a batch of windows, when nobody says otherwise."""
PROBE = 200
"""Characters of the text that show what its tokenizer puts before one."""
ROUTED = 1e-4
"""Share of hidden states by which the roundoff of a deep mixture of experts may move them; an encoder with its random
first weights moved by 2 · 10⁻³."""
VOCABULARIES = ("both", "model", "tokenizer")
BOS = ("auto", "on", "off")


@dataclass(frozen=True, kw_only=True)
class HuggingFaceOptions:
    """How a Hugging Face model is read."""

    revision: str | None = None
    """Branch, tag or commit on the hub."""
    context_length: int | None = None
    """Tokens of a window, those before the text among them; by default the model's own limit, at most
    `DEFAULT_CONTEXT_LENGTH`."""
    stride: int | None = None
    """Tokens between the starts of windows; by default half a window. Each context has length − stride + 1 or more."""
    bos: str = "auto"
    """Whether every window begins with what the tokenizer puts before a text, or says it does (``add_bos_token``):
    ``"auto"`` for whenever that is anything, ``"on"`` for its beginning-of-sequence token otherwise, ``"off"`` for the
    text alone."""
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
        if self.bos not in BOS:
            raise ConfigurationError(f"unknown bos {self.bos!r}; it is one of {', '.join(BOS)}")
        for name in ("context_length", "stride", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}")


class ModelOnText:
    """A model, its tokenizer and the windows of a text; nothing is loaded before it is asked for.

    Args:
        path: the model's folder.
        text: what it reads.
        contexts: only the first so many.
        dtype: of the body, or ``"auto"``.
        device: where it runs.
        options: the rest.

    Raises:
        SourceError: for a folder or a text that cannot be measured.
        ConfigurationError: for a setting out of range.
    """

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
        self.weights = hf_folder.weight_files(path, allow_pickle=options.allow_pickle)
        self.skeleton = hf_model.skeleton(path)
        shape = hf_model.output_layer(self.skeleton, path).weight.shape
        self.vocab_size, self.embedding_size = int(shape[0]), int(shape[1])
        self.body_dtype = _body_dtype(dtype, self.skeleton.config)
        self.head_dtype = "float64" if options.precise or self.body_dtype == "float64" else "float32"
        self.tokenizer = Tokenizer(path)
        self.ids = self.tokenizer.encode(text.text, vocab_size=self.vocab_size)
        self.prefix = self.tokenizer.prefix(options.bos, text.text[:PROBE], vocab_size=self.vocab_size)
        self.windows = _windows(len(self.ids), self.skeleton.config, options, prefix=len(self.prefix))
        self.batch_size = options.batch_size or max(1, TOKENS_AT_ONCE // self.windows.context_length)
        available = self.windows.contexts
        if contexts is not None and not 1 <= contexts <= available:
            raise SourceError(f"--contexts must be between 1 and the {available:,} of this text, not {contexts:,}")
        self.contexts = contexts or available

    @cached_property
    def body(self) -> nn.Module:
        """The model with its weights."""
        dtype = hf_model.BODY_DTYPES[self.body_dtype]
        pickled = self.weights[0].suffix == ".bin"
        return hf_model.load(self.path, dtype=dtype, device=self.device, pickled=pickled)

    @cached_property
    def linear(self) -> nn.Linear:
        """The model's own output layer."""
        return hf_model.output_layer(self.body, self.path)

    @cached_property
    def layer(self) -> OutputLayer:
        """The output layer, found to make the model's own logits; the body, found to be causal."""
        found = self._try(self._sample)
        layer = full_precision_layer(
            self.body, self.linear, found, dtype=hf_model.BODY_DTYPES[self.head_dtype], what=str(self.path)
        )
        self.logit_difference = logit_difference(layer, found)
        self._check_causal(found.hidden)
        return layer

    @cached_property
    def norm(self) -> FinalNorm | None:
        """The LayerNorm before the output layer."""
        hidden = self._try(self._sample).hidden
        return final_norm(self.body, lambda: self._try(self._sample), hidden, eps=EPS[self.body_dtype])

    @cached_property
    def hidden(self) -> HiddenStates:
        """H of all contexts."""
        _ = self.layer
        return HiddenStates(
            self._encode,
            self.ids,
            self.windows,
            contexts=self.contexts,
            size=self.embedding_size,
            dtype=hf_model.BODY_DTYPES[self.body_dtype],
            batch_size=self.batch_size,
        )

    def _encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        before = self.prefix.expand(len(ids), -1)
        ids, mask = torch.cat([before, ids], 1), torch.cat([torch.ones_like(before), mask], 1)
        return hf_model.final_hidden(self.body, self.linear, ids, mask)[:, len(self.prefix) :]

    @property
    def _sample(self) -> Tensor:
        return torch.cat([self.prefix, self.ids[: min(SAMPLE, self.windows.context_length)]])

    def _try(self, ids: Tensor) -> hf_model.Sample:
        return hf_model.sample(self.body, self.linear, ids)

    def _check_causal(self, hidden: Tensor) -> None:
        """Refuse a model whose hidden states know the tokens after them: the last one, or half of all."""
        for kept in {len(hidden) - 1, len(hidden) // 2} - {0}:
            changed = self._sample.clone()
            changed[kept:] = (changed[kept:] + 1) % self.vocab_size
            before, after = hidden[:kept].double(), self._try(changed).hidden[:kept].double()
            # Experts' products, which take other rows together then, add up in another order: that is roundoff alone.
            if float((before - after).norm()) > max(ROUNDINGS * EPS[self.body_dtype], ROUTED) * float(before.norm()):
                raise SourceError(
                    f"{self.path} looks ahead: its hidden states change with the tokens after them, so it is an "
                    "encoder; only causal (decoder-only) language models can be measured"
                )


def _body_dtype(dtype: str, config: object) -> str:
    found = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.") if dtype == "auto" else dtype
    if found not in hf_model.BODY_DTYPES:
        raise ConfigurationError(
            f"unknown dtype {found!r}; a Hugging Face model runs in {', '.join(hf_model.BODY_DTYPES)} or auto"
        )
    return found


def _windows(tokens: int, config: object, options: HuggingFaceOptions, *, prefix: int) -> Windows:
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)  # type: ignore[attr-defined]
    length = options.context_length or min(limit or DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH)
    if limit and length > limit:
        raise ConfigurationError(f"--context-length {length:,} is more than the {limit:,} tokens the model can read")
    if length <= prefix:
        raise ConfigurationError(
            f"--context-length {length} leaves no room behind what the tokenizer puts before a text, {prefix} tokens: "
            "give a larger one, or --bos off"
        )
    if options.stride is not None and options.stride > length:
        raise ConfigurationError(
            f"--stride must be between 1 and --context-length, not {options.stride:,} with {length:,}"
        )
    room = length - prefix
    return Windows(tokens, room, min(options.stride or max(1, room // 2), room))
