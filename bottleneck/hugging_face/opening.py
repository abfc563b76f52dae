"""Open a Hugging Face model on a text, from its name or a loaded object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.files import sha256_bytes
from ..core.options import HuggingFaceOptions
from ..corpora import catalogue
from ..errors import SourceError
from . import folder, loading
from .model import HuggingFaceModel, LoadedModel, SavedModel
from .on_text import HuggingFaceOnText, Tokens, longest_input
from .options import DEFAULT_CONTEXT_LENGTH
from .text import RunningText, read_text
from .tokenizer import Tokenizer, given_tokenizer, read_tokenizer

PROBE = 200
"""Number of characters that are encoded to see which special tokens the tokenizer puts before a text."""


def open_saved(
    name: str,
    *,
    data: str | None = None,
    split: str = "test",
    dtype: str = "float32",
    device: str = "cpu",
    hugging_face: HuggingFaceOptions,
) -> HuggingFaceOnText:
    """Open a model by its folder or its name on the hub; its weights are read when they are needed.

    Args:
        name: a folder that ``save_pretrained`` wrote, or a hub id.
        data: a corpus or a ``.txt`` file; by default the built-in corpus.
        split: split of the corpus.
        dtype: type that the body runs in: ``"float32"``, ``"bfloat16"``, ``"float16"``, ``"float64"``, or ``"auto"``
            for the type in its configuration.
        device: device that the model runs on.
        hugging_face: all other options of `HuggingFaceOptions`.

    Raises:
        SourceError: for a model that is no causal language model, lacks weights, or cannot be downloaded.
        CorpusError: for a missing text.
        ConfigurationError: for a setting out of range, or without the package transformers.
    """
    folder.import_transformers()
    path = Path(name)
    if not path.exists():
        path = folder.fetch(name, revision=hugging_face["revision"], allow_pickle=hugging_face["allow_pickle"])
    folder.read_config(path)
    text = read_text(data, split, dataset=hugging_face["dataset"])
    model = SavedModel(path, dtype=dtype, device=device, allow_pickle=hugging_face["allow_pickle"])
    tokens = _encode(text, read_tokenizer(path), model, hugging_face)
    return HuggingFaceOnText(model, tokens, options=hugging_face, path=name)


def open_loaded(
    model: nn.Module,
    *,
    data: Any = None,
    tokenizer: Any = None,
    split: str = "test",
    dtype: str = "float32",
    hugging_face: HuggingFaceOptions,
) -> HuggingFaceOnText:
    """Open a loaded causal language model of transformers, which is not changed.

    Args:
        model: the model, on its own device and in its own type.
        data: a text, a corpus, a ``.txt`` file; or token ids, one text (N,) or B texts (B, L), each read alone. By
            default the built-in corpus.
        tokenizer: tokenizer of transformers or of the package tokenizers; needed for a text.
        split: split of a corpus.
        dtype: the model's own type.
        hugging_face: all other options of `HuggingFaceOptions`.

    Raises:
        SourceError: for ids outside the model's vocabulary, or a text without a tokenizer.
        CorpusError: for a missing text.
        ConfigurationError: for a setting out of range.
    """
    if getattr(model.config, "is_encoder_decoder", False):
        raise SourceError(
            f"{type(model).__name__} is a sequence-to-sequence model; only causal (decoder-only) language models can "
            "be measured"
        )
    loaded = LoadedModel(model, dtype=dtype)
    cutter = None if tokenizer is None else given_tokenizer(tokenizer)
    if data is not None and not isinstance(data, str | Path):
        tokens = _given(data, cutter, loaded, hugging_face)
    elif cutter is None:
        raise SourceError(
            "a text needs the model's tokenizer: give tokenizer=AutoTokenizer.from_pretrained(…), or data=token ids"
        )
    else:
        tokens = _encode(_read(data, split, hugging_face["dataset"]), cutter, loaded, hugging_face)
    return HuggingFaceOnText(loaded, tokens, options=hugging_face, path=loaded.name)


def _read(data: str | Path | None, split: str, dataset: str | None) -> RunningText:
    """Return a text that is given by name or as itself; a string of several words is no name."""
    named = data is None or str(data).endswith(".txt") or str(data) in {info.name for info in catalogue()}
    if named or len(str(data).split()) < 2:
        return read_text(None if data is None else str(data), split, dataset=dataset)
    return RunningText("text", None, str(data))


def _encode(text: RunningText, tokenizer: Tokenizer, model: HuggingFaceModel, options: HuggingFaceOptions) -> Tokens:
    vocab_size = loading.input_size(model.skeleton, model.name)
    ids = tokenizer.encode(text.text, vocab_size=vocab_size)
    prefix = tokenizer.prefix(options["bos"], text.text[:PROBE], vocab_size=vocab_size)
    return Tokens(text.name, text.split, text.sha256, ids, prefix, tokenizer)


def _given(data: Any, tokenizer: Tokenizer | None, model: HuggingFaceModel, options: HuggingFaceOptions) -> Tokens:
    """Return given token ids: one text (N,), B texts (B, L), or the output of a tokenizer of transformers.

    A single row that is longer than a window, or with options of windows, is one text (N,).
    """
    mask = data.get("attention_mask") if hasattr(data, "get") else None
    ids = _integers(data["input_ids"] if hasattr(data, "keys") else data)
    if mask is not None and not bool(_integers(mask).all()):
        raise SourceError("the ids are padded (attention_mask holds zeros): give one text without padding")
    embedded = loading.input_size(model.skeleton, model.name)
    if bool((ids < 0).any()) or bool((ids >= embedded).any()):
        raise SourceError(
            f"token ids must lie between 0 and {embedded - 1:,}, the last token with an input embedding, not "
            f"{int(ids.min()):,} to {int(ids.max()):,}"
        )
    window = min(longest_input(model.skeleton) or DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH)
    running = options["context_length"] or options["stride"] or ids.shape[-1] > window + 1
    texts = None if ids.ndim == 1 or (running and len(ids) == 1) else len(ids)
    if texts and ids.shape[1] < 2:
        raise SourceError(
            f"each row of ids (B, L) is a text of its own and needs at least two tokens, not {tuple(ids.shape)}: give "
            "one text as (N,)"
        )
    sha256 = sha256_bytes(ids.numpy().tobytes())
    none = torch.empty(0, dtype=torch.int64)
    return Tokens("token ids", None, sha256, ids.reshape(-1), none, tokenizer, texts)


def _integers(given: Any) -> Tensor:
    try:
        ids = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise SourceError(f"data must be a text or token ids, (N,) or (B, L) integers: {error}") from error
    if ids.ndim not in (1, 2) or ids.is_floating_point() or not ids.numel():
        raise SourceError(f"token ids must be integers of shape (N,) or (B, L), not {ids.dtype} of {tuple(ids.shape)}")
    return ids.to(torch.int64)
