"""A Hugging Face causal language model on a text that its own tokenizer encodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.files import sha256_bytes
from ..core.full_precision import full_precision
from ..core.options import HuggingFaceOptions
from ..errors import ConfigurationError, SourceError
from ..heads import Head, RankBound, Softmax
from ..language_models.checked_product import ROUNDINGS, SAMPLE
from ..language_models.on_text import Ids, ModelOnText, joined
from ..language_models.source import Cost
from ..spectrum import EPS
from ..spectrum.blocks import as_array
from . import loading
from .checked_head import CheckedHead, checked_head, unloaded_head
from .final_norm import FinalNorm, bound_of, final_norm
from .hidden_states import HiddenStates
from .model import HuggingFaceModel
from .options import DEFAULT_CONTEXT_LENGTH, TOKENS_AT_ONCE
from .tokenizer import TokenizedText, Tokenizer
from .windows import Windows

ROUTED = 1e-4
"""Relative change of hidden states that the roundoff of a deep mixture of experts may cause; in an untrained encoder,
later tokens changed them by 2 · 10⁻³."""


LEAST_ROWS = 192
"""Least number of rows of a block: its product reads all of W, and with fewer rows memory bandwidth limits it."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """A text as token ids."""

    name: str
    """Name of the corpus, file or dataset."""
    split: str | None
    sha256: str
    """Hash of the text."""
    ids: Tensor
    """int64, (N,)."""
    prefix: Tensor
    """int64, (n,), special tokens at the start of every window."""
    tokenizer: Tokenizer | None
    """Tokenizer that encoded the text, if it is known."""
    texts: int | None = None
    """Number of texts of one length that ``ids`` are, each read in a window of its own; ``None`` for a running text."""

    @property
    def length(self) -> int | None:
        """Number of tokens of each such text that the model reads: all but the last one."""
        return len(self.ids) // self.texts - 1 if self.texts else None

    @cached_property
    def read(self) -> Tensor:
        """The tokens that the model reads, one text after the other, and the last one of all."""
        if self.texts is None:
            return self.ids
        return torch.cat([self.ids.view(self.texts, -1)[:, :-1].flatten(), self.ids[-1:]])

    def places(self, least: int) -> NDArray[np.int64]:
        """Return the indices of the predicted tokens, those after at least ``least`` tokens of their text."""
        return np.arange(len(self.ids)).reshape(self.texts or 1, -1)[:, least:].reshape(-1)


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

    least_rows = LEAST_ROWS

    def __init__(self, model: HuggingFaceModel, text: Tokens, *, options: HuggingFaceOptions, path: str) -> None:
        self.model, self._text, self._options = model, text, options
        self._windows = _windows(text, model.skeleton, options)
        self.contexts = self._windows.contexts
        self.dtype = "float64" if options["precise"] or model.dtype == "float64" else "float32"
        first = self._windows.minimum
        places = text.places(first)
        targets = text.ids.numpy()[places]
        self.targets = targets if targets.max() < self.skeleton.vocab_size else None
        if text.tokenizer is not None:
            self.text = TokenizedText(text.ids.numpy(), places, text.tokenizer, text.texts or 1)
            both = options["vocab"] == "both" and isinstance(self.skeleton, Softmax)
            self.own_tokens = text.tokenizer.size if both else None
            self.columns = text.tokenizer.size if options["vocab"] == "tokenizer" else None
        self.description = {
            "path": path,
            "kind": "hugging-face",
            "head": _name(model.skeleton, self.skeleton),
            "corpus": text.name,
            "split": text.split,
            "architecture": type(model.skeleton).__name__,
            "revision": options["revision"],
            "body_dtype": model.dtype,
            "context_length": self._windows.context_length + len(text.prefix),
            "stride": self._windows.stride,
            "least_context": first,
            "prefix": text.tokenizer.tokens(text.prefix.tolist()) if text.tokenizer else text.prefix.tolist(),
        }

    @cached_property
    def skeleton(self) -> Head:
        """The output layer without its weights, from the configuration."""
        return unloaded_head(self.model.skeleton, self.model.name, dtype=loading.BODY_DTYPES[self.dtype])

    @cached_property
    def _checked(self) -> CheckedHead:
        dtype = loading.BODY_DTYPES[self.dtype]
        checked = checked_head(self.model.body, self.model.name, self._sample, dtype=dtype)
        self._check_causal(checked.hidden)
        return checked

    @property
    def full_head(self) -> Head:
        """The output layer, after a check that it reproduces the model's own logits and that the body is causal."""
        return self._checked.head

    @property
    def logit_difference(self) -> float:
        """The largest difference between a recomputed logit and the model's own, on a sample."""
        return self._checked.difference

    @cached_property
    def norm(self) -> FinalNorm | None:
        """The LayerNorm before a softmax of the hidden states themselves, if there is one."""
        if not isinstance(self.full_head, Softmax) or self.full_head.contexts is not None:
            return None
        body, hidden = self.model.body, self._checked.hidden
        return final_norm(body, lambda: loading.hidden_of(body, self._sample), hidden, eps=EPS[self.model.dtype])

    @cached_property
    def bound(self) -> RankBound:  # type: ignore[override]
        """The algebraic bound on the rank of log P, with the effect of a final LayerNorm."""
        return bound_of(self.full_head, self.norm, exact_norm=EPS[self.model.dtype] <= EPS[self.dtype])

    @cached_property
    def identity(self) -> Mapping[str, str]:  # type: ignore[override]
        """Hashes of the weights and the text, and all settings that change a number."""
        return {
            **self.model.identity,
            "corpus": self._text.sha256,
            "tokens": sha256_bytes(self._text.ids.numpy().tobytes()),
            "windows": f"{self._windows.context_length} {self._windows.stride}",
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
        skeleton, head = self.model.skeleton, self.skeleton
        layer = loading.output_layer(skeleton, self.model.name)
        embeddings = {skeleton.get_input_embeddings().weight, layer.weight}  # type: ignore[operator]
        parameters = sum(parameter.numel() for parameter in skeleton.parameters())
        body = parameters - sum(embedding.numel() for embedding in embeddings)
        body_type, head_type = (loading.BODY_DTYPES[name] for name in (self.model.dtype, self.dtype))
        size = (parameters + self.contexts * head.hidden_size) * body_type.itemsize
        if head_type != body_type:
            size += layer.weight.numel() * head_type.itemsize
        return Cost(2.0 * body * sum(map(len, self.windows())), size)

    def windows(self) -> Iterator[Tensor]:
        """Yield the ids of each window that the body reads, including overlaps."""
        for number in range((self.contexts - 1) // self._windows.stride + 1):
            window = self._windows.window(number, self.contexts)
            yield torch.cat([self._text.prefix, self._text.read[window.start : window.start + window.length]])

    def hidden(self, ranges: Iterable[range]) -> Iterator[Tensor]:
        """Yield the hidden states of ranges of contexts, (n, d) each, in the head's type."""
        return (self._states.rows(rows.start, rows.stop).to(self.full_head.weight) for rows in ranges)

    @cached_property
    def _states(self) -> HiddenStates:
        _ = self.full_head  # the model is checked before it runs over the whole text
        return HiddenStates(
            self._encode,
            self._text.read,
            self._windows,
            contexts=self.contexts,
            size=self.skeleton.hidden_size,
            dtype=loading.BODY_DTYPES[self.model.dtype],
            batch_size=self._options["batch_size"] or max(1, TOKENS_AT_ONCE // self._windows.context_length),
        )

    def _encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        before = self._text.prefix.expand(len(ids), -1)
        ids, mask = torch.cat([before, ids], 1), torch.cat([torch.ones_like(before), mask], 1)
        return loading.final_hidden(self.model.body, ids, mask)[:, len(self._text.prefix) :]

    @property
    def longest_input(self) -> int:
        """Largest number of tokens that a window holds, without its special tokens."""
        return self._windows.context_length

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

    @property
    def _sample(self) -> Tensor:
        return torch.cat([self._text.prefix, self._text.read[: min(SAMPLE, self._windows.context_length)]])

    def _check_causal(self, hidden: Tensor) -> None:
        """Refuse a model whose hidden states change with later tokens: with the last token, or the second half."""
        for kept in {len(hidden) - 1, len(hidden) // 2} - {0}:
            changed = self._sample.clone()
            changed[kept:] = (changed[kept:] + 1) % loading.input_size(self.model.skeleton, self.model.name)
            before, after = hidden[:kept].double(), loading.hidden_of(self.model.body, changed)[:kept].double()
            # Experts' products, which take other rows together then, add up in another order: that is roundoff alone.
            if float((before - after).norm()) > max(ROUNDINGS * EPS[self.model.dtype], ROUTED) * float(before.norm()):
                raise SourceError(
                    f"{self.model.name} looks ahead: its hidden states change with the tokens after them, so it is an "
                    "encoder; only causal (decoder-only) language models can be measured"
                )


def _name(model: Any, head: Head) -> str:
    """Return the name of a model's head."""
    if hasattr(model, "spec"):
        return str(model.spec.head)
    return "softmax" if getattr(head, "soft_cap", None) is None else "soft-capped softmax"


POSITIONS = ("wpe", "position_embeddings", "embed_positions", "positions_embed")
"""Names of tables with an embedding for each position."""


def longest_input(model: Any) -> int | None:
    """Return the most tokens that a model can read; ``None`` for no limit, which XLNet's configuration writes as −1.

    A table of positions with padding, such as RoBERTa's, has no row for a token before the one after its padding.
    """
    limits = [getattr(model.config.get_text_config(), "max_position_embeddings", None) or 0]
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in POSITIONS and isinstance(module, torch.nn.Embedding):
            limits.append(module.num_embeddings - (-1 if module.padding_idx is None else module.padding_idx) - 1)
    return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=None)


def _windows(text: Tokens, model: Any, options: HuggingFaceOptions) -> Windows:
    tokens, prefix, limit = len(text.read), len(text.prefix), longest_input(model)
    if text.length is not None:
        shortest = min(options["context_length"] or text.length, options["stride"] or text.length)
        if shortest < text.length or (limit or text.length) < text.length:
            raise ConfigurationError(
                f"each row of ids (B, L) is a text of its own, read in one window of {text.length:,} tokens, and "
                f"{min(shortest, limit or shortest):,} are allowed: give shorter rows, or one text as ids (N,)"
            )
        return Windows(tokens, text.length, text.length)
    length = options["context_length"] or min(limit or DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH)
    if limit and length > limit:
        raise ConfigurationError(f"--context-length {length:,} is more than the {limit:,} tokens the model can read")
    if length <= prefix:
        raise ConfigurationError(
            f"--context-length {length} leaves no room for text after the {prefix} special tokens that begin a window: "
            "give a larger one, or --bos off"
        )
    if options["stride"] is not None and options["stride"] > length:
        raise ConfigurationError(
            f"--stride must be between 1 and --context-length, not {options['stride']:,} with {length:,}"
        )
    room = length - prefix
    return Windows(tokens, room, min(options["stride"] or max(1, room // 2), room))
