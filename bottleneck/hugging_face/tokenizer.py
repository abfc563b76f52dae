"""A model's tokenizer, and a text that it encodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.json_file import read_json
from ..errors import SourceError, first_line
from ..language_models.text import Text
from .loading import quiet

VOCABULARY_FILES = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json")
"""Files of tokenizers: of the package tokenizers, SentencePiece, BPE and WordPiece, tiktoken, and Mistral."""


class Tokenizer:
    """A model's own tokenizer.

    Args:
        tokenizer: tokenizer of transformers, or of the package tokenizers.
        name: name of the tokenizer in errors.
        settings: ``add_bos_token`` and ``bos_token`` of ``tokenizer_config.json``.
    """

    def __init__(self, tokenizer: Any, *, name: str, settings: Mapping[str, Any]) -> None:
        self._tokenizer, self._name, self._settings = tokenizer, name, settings
        self.size: int = 1 + max(tokenizer.get_vocab().values())

    def encode(self, text: str, *, vocab_size: int) -> Tensor:
        """Return the ids of a text, int64 (N,), without special tokens.

        Raises:
            SourceError: when an id is outside the model's vocabulary, or all words of the text get the same id.
        """
        ids = self._checked(self._ids(text, special=False), vocab_size)
        different = ids.unique().tolist()
        if len(different) < 2 and (len(ids) > 1 or len(text.split()) > 1):
            made = "".join(f", {self._tokenizer.convert_ids_to_tokens(one)!r} ({one})" for one in different)
            raise SourceError(
                f"the tokenizer of {self._name} makes {'one' if made else 'no'} token of the whole text{made}: put the "
                "model's own tokenizer beside it, or give another text"
            )
        return ids

    def _ids(self, text: str, *, special: bool) -> list[int]:
        with quiet():
            try:
                ids: list[int] = self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
            except Exception as error:  # tokenizers raises bare ones
                raise SourceError(f"the tokenizer of {self._name} cannot encode the text: {error}") from error
        return ids

    def prefix(self, bos: str, text: str, *, vocab_size: int) -> Tensor:
        """Return the special tokens at the start of every window, int64 (n,); see `HuggingFaceOptions.bos`.

        Args:
            bos: ``"auto"``, ``"on"`` or ``"off"``.
            text: a piece of the text, to see which special tokens the tokenizer puts before it.
            vocab_size: vocabulary size of the model.

        Raises:
            SourceError: when there is no token for ``"on"``, or it is outside the model's vocabulary.
        """
        if bos == "off":
            return torch.empty(0, dtype=torch.int64)
        plain, whole = self._ids(text, special=False), self._ids(text, special=True)
        places = (place for place in range(len(whole)) if plain and whole[place : place + len(plain)] == plain)
        ids = whole[: next(places, 0)]
        if not ids and (bos == "on" or self._settings.get("add_bos_token") is True):
            ids = self._first_token()
        if not ids and bos == "on":
            raise SourceError(f"the tokenizer of {self._name} names no token that begins a text: leave out --bos on")
        return self._checked(ids, vocab_size)

    def _first_token(self) -> list[int]:
        """Return the beginning-of-sequence token, if one is named."""
        token = self._settings.get("bos_token")
        token = token.get("content") if isinstance(token, dict) else token
        number = self._tokenizer.get_vocab().get(token) if token else None
        return [] if number is None else [number]

    def _checked(self, ids: list[int], vocab_size: int) -> Tensor:
        # Tokenizers written in Python return any number, or None, for an unknown token.
        outside = [token for token in ids if token is None or not 0 <= token < vocab_size]
        if outside:
            raise SourceError(
                f"the tokenizer of {self._name} makes the token {outside[0]}, and the model has {vocab_size:,}, "
                "numbered from 0: put the model's own tokenizer beside it"
            )
        return torch.tensor(ids, dtype=torch.int64)

    def tokens(self, ids: list[int]) -> list[str]:
        """Return each token as text."""
        return [self._tokenizer.decode([token]) if token < self.size else f"<{token}>" for token in ids]

    def text(self, ids: list[int]) -> str:
        """Return consecutive tokens as text."""
        return str(self._tokenizer.decode(ids))


def read_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer in a model's folder.

    Raises:
        SourceError: when there is none, or it cannot be read.
    """
    # Without files, transformers returns an empty tokenizer of the model's type.
    if not any(list(path.glob(pattern)) for pattern in VOCABULARY_FILES):
        raise SourceError(f"{path} has no tokenizer; put the model's tokenizer.json beside its weights")
    config = _read(path / "tokenizer_config.json")
    settings = {"bos_token": _read(path / "special_tokens_map.json").get("bos_token")}
    settings |= {key: value for key, value in config.items() if value is not None}
    with quiet() as transformers:
        try:
            whole = path / "tokenizer.json"
            # tokenizer.json is complete; the class that belongs to the model's type may be another tokenizer.
            tokenizer = (
                transformers.PreTrainedTokenizerFast(tokenizer_file=str(whole))
                if whole.exists()
                else transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=False, local_files_only=True)
            )
            return Tokenizer(tokenizer, name=str(path), settings=settings)
        except Exception as error:  # tokenizers raises bare ones
            if code := _code(config):
                raise SourceError(
                    f"the tokenizer of {path} is code of its own (auto_map names {code}), and no code that comes "
                    "with a model is run here: put its tokenizer.json beside its weights"
                ) from error
            raise SourceError(
                f"{path} has no tokenizer that can be read ({first_line(error)}); put its tokenizer.json beside its "
                "weights"
            ) from error


def given_tokenizer(tokenizer: Any) -> Tokenizer:
    """Return a loaded tokenizer as a `Tokenizer`.

    Raises:
        SourceError: when ``tokenizer`` is no tokenizer.
    """
    name = type(tokenizer).__name__
    if type(tokenizer).__module__.partition(".")[0] == "tokenizers":
        with quiet() as transformers:
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    if not callable(tokenizer) or not hasattr(tokenizer, "get_vocab"):
        raise SourceError(f"a {name} is no tokenizer: give one of transformers, or of the package tokenizers")
    settings = {key: getattr(tokenizer, key, None) for key in ("add_bos_token", "bos_token")}
    return Tokenizer(tokenizer, name=getattr(tokenizer, "name_or_path", "") or name, settings=settings)


def _code(config: Mapping[str, Any]) -> str:
    """Return the names of the classes that ``tokenizer_config.json`` takes from the model's own code, if any."""
    classes = config.get("auto_map")
    if isinstance(classes, dict):
        classes = classes.get("AutoTokenizer")
    names = classes if isinstance(classes, list) else []
    return ", ".join(str(name).rpartition(".")[2] for name in names if name)


def _read(file: Path) -> dict[str, Any]:
    """Return the content of an optional JSON file, or an empty mapping if there is none."""
    if not os.path.lexists(file):
        return {}
    content: dict[str, Any] = read_json(file, dict[str, Any], error=SourceError, remedy="download the model again")
    return content


@final
class TokenizedText(Text):
    """A text that a model's tokenizer encoded."""

    def __init__(self, ids: NDArray[np.int64], places: NDArray[np.int64], tokenizer: Tokenizer, texts: int = 1) -> None:
        super().__init__(ids, places, texts=texts)
        self._tokenizer = tokenizer

    def tokens(self, ids: list[int]) -> list[str]:
        """Return each token."""
        return self._tokenizer.tokens(ids)

    def join(self, ids: list[int]) -> str:
        """Return the text of consecutive tokens."""
        return self._tokenizer.text(ids)

    def ends_line(self, token: int) -> bool:
        """Return whether a token holds the end of a line."""
        return "\n" in self._tokenizer.text([token])
