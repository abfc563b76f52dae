"""A Hugging Face causal language model on a text that its own tokenizer encodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Unpack

import numpy as np
from torch import nn

from ..core.files import sha256_bytes
from ..core.options import HuggingFaceOptions, takes
from ..corpora.batches import texts_in
from ..corpora.own import given_data, name_of_ids
from ..errors import ConfigurationError, Parameter, SourceError
from ..language_models import ModelOnText, Text
from ..language_models.llama_cpp import KldFile, is_kld
from ..language_models.reading import Reading
from ..language_models.text import Ids, token_bytes
from .model import HuggingFaceModel, loaded_model, saved_model
from .text import DATASET, read_ids, read_text
from .tokenizer import Tokenizer

DEFAULT_CONTEXT_LENGTH = 1024
"""Tokens of a window if the model can take more: the limit of GPT-2, because the cost of attention grows with it."""
FIRST = 50
"""Tokens of a .kld file of which the tokenizer is asked what begins a text."""
TOKENS_AT_ONCE = 4096
"""Default number of tokens of a batch of windows."""


@takes(HuggingFaceOptions)
def open_saved(
    name: str,
    *,
    data: Any = None,
    split: str = "test",
    dtype: str = "float32",
    device: str = "cpu",
    **options: Unpack[HuggingFaceOptions],
) -> ModelOnText:
    """Open a model by its folder, its GGUF file or its name; its weights are read when they are needed."""
    read = _readable(data, split, options)  # what cannot be read is refused before the model is built
    more: Any = {option: options[option] for option in ("revision", "allow_pickle")}
    return _on_text(saved_model(name, dtype=dtype, device=device, **more), read, options)


@takes(HuggingFaceOptions)
def open_loaded(
    model: nn.Module,
    *,
    data: Any = None,
    tokenizer: Any = None,
    split: str = "test",
    dtype: str = "float32",
    **options: Unpack[HuggingFaceOptions],
) -> ModelOnText:
    """Open a loaded causal language model of transformers, which is not changed; see `Opening` for ``data``."""
    loaded = loaded_model(model, dtype=dtype, tokenizer=tokenizer)
    return _on_text(loaded, _readable(data, split, options), options)


def _readable(data: Any, split: str, options: HuggingFaceOptions) -> Callable[[HuggingFaceModel], tuple[Text, bool]]:
    """Read what ``data`` is or names, and return what makes a text of it for a model.

    It also says whether this is running text, in place of parts that are each read in a window of their own. See
    `given_data` and `read_text` for ``data``, which may also be a .kld file.
    """
    if data is not None and options["dataset"] is not None:
        raise ConfigurationError(Parameter("data"), " and ", DATASET, " each name a text: give one of them")
    if is_kld(data):
        file = KldFile(data)
        return lambda model: (_of_kld(file, model, options["bos"]), False)
    given: Any = given_data(data)
    if isinstance(given, list):
        if options["bos"] == "on" or split != "test":
            option = Parameter("bos", "on") if options["bos"] == "on" else Parameter("split")
            raise ConfigurationError(option, " does not apply to token ids, which are read as they are")
        is_windowed = bool(options["context_length"] or options["stride"])
        return lambda model: _of_ids(given, model, name=name_of_ids(data), is_windowed=is_windowed)
    raw = read_text(given or data, split, dataset=options["dataset"])
    written = raw.decoded()

    def encoded(model: HuggingFaceModel) -> tuple[Text, bool]:
        if (tokenizer := model.encoder()) is None:
            raise SourceError(
                f"a text needs the model's tokenizer, and {model.name} has none: give token ids, ",
                Parameter("data", "IDS.npy"), ", or, for a loaded model, tokenizer=AutoTokenizer.from_pretrained(…)",
            )  # fmt: skip
        ids, prefix, size = tokenizer.encode(written, bos=options["bos"], vocab_size=model.input_size)
        about: Any = {"name": raw.where, "split": raw.split, "sha256": sha256_bytes(written.encode()), "size": size}
        if len(raw.sizes) > 1:
            about["joined"] = _beginnings(raw.sizes, ids, tokenizer)
        return Text(ids=ids, starts=np.zeros(1, np.int64), prefix=prefix, tokenizer=tokenizer, **about), True

    return encoded


def _beginnings(sizes: Sequence[int], ids: Ids, tokenizer: Tokenizer) -> Ids:
    """Return where texts of these sizes begin, by the bytes of the tokens, of which some tokenizers leave some out."""
    ends, texts = np.cumsum(token_bytes(tokenizer, ids)), np.cumsum(sizes)
    return np.append(0, np.searchsorted(ends, texts[:-1] / texts[-1] * ends[-1]))


def _of_kld(file: KldFile, model: HuggingFaceModel, bos: str) -> Text:
    """Return the chunks of a file of llama.cpp, with the token that begins a text where the model has one."""
    tokenizer, size = _tokenizer(model), model.input_size
    if tokenizer is None and bos != "off":
        raise SourceError(
            f"{model.name} has no tokenizer that can be read, which says whether a token begins every text: put its "
            "tokenizer.json beside its weights, or, if none does, give ", Parameter("bos", "off"),
        )  # fmt: skip
    first = tokenizer.join(file.tokens[0, :FIRST].tolist()) if tokenizer else ""
    prefix = tokenizer.encode(first, bos=bos, vocab_size=size)[1].tolist() if tokenizer else []
    texts: Any = texts_in(file.batches(prefix))
    return read_ids(texts, tokenizer, vocab_size=size, name=str(file.path))


def _of_ids(texts: Any, model: HuggingFaceModel, *, name: str, is_windowed: bool) -> tuple[Text, bool]:
    """Return given ids; one text that is longer than a window and the token after it is running text."""
    text = read_ids(texts, _tokenizer(model), vocab_size=model.input_size, name=name)
    window = min(model.limit or DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH)
    return text, len(texts) == 1 and (is_windowed or len(text.ids) > window + 1)


def _tokenizer(model: HuggingFaceModel) -> Tokenizer | None:
    """Return the model's tokenizer; ``None`` where none can be read, because ids are measured without it."""
    with suppress(SourceError):
        return model.encoder()
    return None


def _on_text(
    model: HuggingFaceModel, read: Callable[[HuggingFaceModel], tuple[Text, bool]], options: HuggingFaceOptions
) -> ModelOnText:
    model.compute_in(precise=options["precise"])
    text, is_running = read(model)
    length, stride = (_windows if is_running else _parts)(text, model, options)
    least = length - stride + 1 if is_running else 1
    reading = Reading(
        text.ids,
        text.places[text.places >= least],
        np.arange(0, len(text.ids) - least, stride) if is_running else text.starts,
        least=least,
        prefix=text.prefix,
    )
    if not len(reading.places):
        raise SourceError(
            f"no token after the first {least:,} of the text is a target: give a larger ", Parameter("stride")
        )
    prefix, longest = text.prefix.tolist(), int(reading.lengths.max())
    reading.at_once = options["batch_size"] or max(1, TOKENS_AT_ONCE // longest)
    about = {
        "architecture": type(model.module).__name__,
        "revision": model.revision,
        "body_dtype": model.body_type,
        "context_length": longest + len(prefix),
        "stride": longest - least + 1,
        "least_context": least,
        "prefix": text.tokenizer.names(prefix) if text.tokenizer else prefix,
        **({"quantization": model.quantization} if model.quantization else {}),
    }
    settings = {
        "tokens": sha256_bytes(text.ids.tobytes()),
        "windows": f"{about['context_length']} {about['stride']}",
        "prefix": " ".join(map(str, prefix)),
        "body": model.body_type,
    }
    return ModelOnText(
        model, reading, text.scoring(reading.places), vocab=options["vocab"], about=about, settings=settings
    )


def _parts(text: Text, model: HuggingFaceModel, options: HuggingFaceOptions) -> tuple[int, int]:
    """Return the length of the longest part of a text, and of a stride; each part is read in one window."""
    longest = int((np.append(text.starts[1:], len(text.ids)) - text.starts).max()) - 1
    allowed = min(options["context_length"] or longest, options["stride"] or longest, model.limit or longest)
    if allowed < longest:
        raise ConfigurationError(
            f"each row of ids (B, L) is a text of its own, read in one window of {longest:,} tokens, and "
            f"{allowed:,} are allowed: give shorter rows, or one text as ids (N,)"
        )
    return longest, longest


def _windows(text: Text, model: HuggingFaceModel, options: HuggingFaceOptions) -> tuple[int, int]:
    """Return the length and the stride of the windows of running text, without its special tokens."""
    limit, prefix = model.limit, len(text.prefix)
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
    return length, min(stride, length)
