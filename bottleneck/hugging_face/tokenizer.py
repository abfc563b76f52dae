"""A model's tokenizer, and a text that it encodes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, final

import numpy as np

from ..core.files import open_file
from ..core.json_file import read_json
from ..errors import Parameter, SourceError, first_line
from ..language_models.text import Ids
from .folder import AGAIN
from .gguf import read_quickly
from .loading import quiet

VOCABULARY_FILES = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json")
"""Files of tokenizers: of the package tokenizers, SentencePiece, BPE and WordPiece, tiktoken, and Mistral."""
UNUSED = re.compile(r"[<\[]\W*\w*(reserved|unused)\w*\W*[>\]]", re.IGNORECASE)
"""Names of tokens that no text holds, such as ``<|reserved_special_token_0|>`` and ``[unused1]``."""
BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""Names of single bytes in SentencePiece."""
END_OF_WORD, WITHIN_WORD = "</w>", "##"
"""Marks in the names of tokens: the last one of a word, as of openai-gpt, and all but the first, in WordPiece."""
PROBE = 200
"""Number of characters that are encoded to see which special tokens the tokenizer puts before a text, and on each side
of a cut to see whether it changes the ids."""
PIECE, SPACES, TRIES = 1 << 18, [re.compile(rf"(?<=\S){space}(?=\S)") for space in (" ", "\n")], 50
"""Characters of a text that are encoded at once, where it can be cut, and how many such places are tried."""


@final
class Tokenizer:
    """A model's own tokenizer.

    Args:
        tokenizer: tokenizer of transformers.
        name: name of the tokenizer in errors.
        settings: ``add_bos_token`` and ``bos_token`` of ``tokenizer_config.json``.
    """

    separator = ""

    def __init__(self, tokenizer: Any, *, name: str, settings: Mapping[str, Any]) -> None:
        self._tokenizer, self._name, self._settings = tokenizer, name, settings
        self.size: int = 1 + max(tokenizer.get_vocab().values())

    def encode(self, text: str, *, bos: str, vocab_size: int) -> tuple[Ids, Ids, int]:
        """Return a text without special tokens, the special tokens at the start of every window, and the text's bytes.

        Both are ids, int64, (N,) and (n,). ``bos`` is an option of `HuggingFaceOptions`. Lines that begin with these
        special tokens, as texts from a chat template do, are read without them.

        Raises:
            SourceError: when an id is outside the model's vocabulary, all words of the text get the same id, or there
                is not a first token although ``bos`` is ``"on"``.
        """
        prefix = self._in_range([] if bos == "off" else self._prefix(text[:PROBE], bos), vocab_size)
        if len(prefix):
            begin = re.escape("".join(self.names(prefix.tolist())))
            text = re.sub(rf"^{begin}(?!(?<=\w)\w) ?", "", text, flags=re.MULTILINE)
        pieces = self._pieces(text)
        ids = np.concatenate([self._in_range(self._ids(piece, special=False), vocab_size) for piece in pieces])
        if len(np.unique(ids)) < 2 and (len(ids) > 1 or len(text.split()) > 1):
            raise SourceError(
                f"the tokenizer of {self._name} does not tell the words of the text apart: put the model's own "
                "tokenizer beside it, or give another text"
            )
        return ids, prefix, len(text.encode())

    def _pieces(self, text: str) -> Iterator[str]:
        """Yield a text in pieces whose ids are those of the whole, which takes 100 bytes a character to encode.

        The space between two words begins the second piece, or is left out for a tokenizer that begins every text with
        one. Where neither gives the same ids about the cut, the next space is tried.
        """
        start = 0
        while len(text) - start > PIECE:
            places = (islice(space.finditer(text, start + PIECE), TRIES) for space in SPACES)
            cuts = ((place.start(), begin) for place in chain.from_iterable(places) for begin in place.span())
            stop, begin = next((cut for cut in cuts if self._can_cut(text, *cut)), (len(text), len(text)))
            yield text[start:stop]
            start = begin
        yield text[start:]

    def _can_cut(self, text: str, stop: int, begin: int) -> bool:
        first, last = stop - PROBE, stop + PROBE
        whole, left, right = (
            self._ids(text[part], special=False)
            for part in (slice(first, last), slice(first, stop), slice(begin, last))
        )
        return whole == left + right

    def _in_range(self, ids: list[int], vocab_size: int) -> Ids:
        # Tokenizers written in Python return any number, or None, for an unknown token.
        if outside := [token for token in ids if token is None or not 0 <= token < vocab_size]:
            raise SourceError(
                f"the tokenizer of {self._name} makes the token {outside[0]}, and the model has {vocab_size:,}, "
                "numbered from 0: put the model's own tokenizer beside it"
            )
        return np.array(ids, np.int64)

    def _ids(self, text: str, *, special: bool) -> list[int]:
        with quiet():
            try:
                ids: list[int] = self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
            except Exception as error:  # tokenizers raises bare ones
                raise SourceError(f"the tokenizer of {self._name} cannot encode the text: {error}") from error
        return ids

    def _prefix(self, text: str, bos: str) -> list[int]:
        """Return what the tokenizer puts before a text, otherwise the first token that its settings name."""
        plain, whole = self._ids(text, special=False), self._ids(text, special=True)
        places = (place for place in range(len(whole)) if plain and whole[place : place + len(plain)] == plain)
        if ids := whole[: next(places, 0)]:
            return ids
        if bos == "on" or self._settings.get("add_bos_token") is True:
            token = self._settings.get("bos_token")
            token = token.get("content") if isinstance(token, dict) else token
            vocabulary = self._tokenizer.get_vocab()
            if isinstance(token, str) and token in vocabulary:
                return [vocabulary[token]]
        if bos == "on":
            raise SourceError(
                f"the tokenizer of {self._name} names no token that begins a text: leave out ", Parameter("bos", "on")
            )
        return []

    def unused(self) -> list[int]:
        """Return the ids of the tokens whose names say that no text holds them."""
        return sorted(number for name, number in self._tokenizer.get_vocab().items() if UNUSED.fullmatch(name))

    def __len__(self) -> int:
        return self.size

    def names(self, ids: list[int]) -> list[str]:
        """Return each token as text."""
        return [self._tokenizer.decode([token]) if token < self.size else f"<{token}>" for token in ids]

    def spelled(self, ids: list[int]) -> list[str]:
        """Return each token as its bytes, those that are not UTF-8 as half surrogates."""
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        of_bytes = {sign: byte for byte, sign in bytes_to_unicode().items()} if "ByteLevel" in str(backend) else {}
        in_words = "WordPiece" in str(backend)

        def spell(piece: str) -> str:
            if BYTE.fullmatch(piece):
                return bytes([int(piece[3:5], 16)]).decode(errors="surrogateescape")
            if of_bytes.keys() >= {*piece}:
                return bytes(of_bytes[sign] for sign in piece).decode(errors="surrogateescape")
            if in_words:
                return piece.removeprefix(WITHIN_WORD) if piece.startswith(WITHIN_WORD) else f" {piece}"
            if piece.endswith(END_OF_WORD):
                return f"{piece.removesuffix(END_OF_WORD)} "
            return piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ")

        return [spell(piece or "") for piece in self._tokenizer.convert_ids_to_tokens(ids)]

    @property
    def unknown(self) -> int | None:
        """The token that stands for any text, if it stands for nothing else."""
        of, model = self._tokenizer, getattr(getattr(self._tokenizer, "backend_tokenizer", None), "model", None)
        if type(model).__name__ == "Unigram":
            place: int | None = json.loads(str(self.json))["model"]["unk_id"]
            return place
        name = of.unk_token or getattr(model, "unk_token", None)
        return None if name in (None, of.bos_token, of.eos_token) else of.get_vocab().get(name)

    @property
    def special(self) -> list[int]:
        """The special tokens, such as the end of a document or of a turn."""
        added = getattr(self._tokenizer, "added_tokens_decoder", {})
        return [token for token, how in added.items() if how.special]

    @property
    def json(self) -> str | None:
        """The file ``tokenizer.json``, for a tokenizer of the package tokenizers."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return None if backend is None else str(backend.to_str())

    def join(self, ids: list[int]) -> str:
        """Return consecutive tokens as text."""
        return str(self._tokenizer.decode(ids))

    def ends_line(self, token: int) -> bool:
        """Return whether a token holds the end of a line."""
        return "\n" in self.join([token])


def read_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer in a model's folder; `SourceError` without one that can be read."""
    # Without files, transformers returns an empty tokenizer of the model's type.
    files = [file for pattern in VOCABULARY_FILES for file in path.glob(pattern)]
    if not files:
        raise SourceError(f"{path} has no tokenizer; put the model's tokenizer.json beside its weights")
    for file in files:
        open_file(file).close()  # not a pointer of Git LFS
    config, special = (_read(path / f"{name}.json") for name in ("tokenizer_config", "special_tokens_map"))
    settings = {"bos_token": special.get("bos_token")} | {key: each for key, each in config.items() if each is not None}
    whole = path / "tokenizer.json"
    with quiet() as transformers:
        try:
            # tokenizer.json is complete; the class that belongs to the model's type may be another tokenizer.
            tokenizer = (
                transformers.PreTrainedTokenizerFast(tokenizer_file=str(whole))
                if whole.exists()
                else transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=False, local_files_only=True)
            )
            return Tokenizer(tokenizer, name=str(path), settings=settings)
        except Exception as error:  # tokenizers raises bare ones
            raise SourceError(
                f"{path} has no tokenizer that can be read ({first_line(error)}); put its tokenizer.json beside its "
                "weights, because no code that comes with a model is run here"
            ) from error


def wrap_tokenizer(tokenizer: Any) -> Tokenizer:
    """Return a loaded tokenizer as a `Tokenizer`; `SourceError` for another object."""
    name = type(tokenizer).__name__
    if type(tokenizer).__module__.partition(".")[0] == "tokenizers":
        with quiet() as transformers:
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    if not callable(tokenizer) or not hasattr(tokenizer, "get_vocab"):
        raise SourceError(f"a {name} is not a tokenizer: give one of transformers, or of the package tokenizers")
    settings = {key: getattr(tokenizer, key, None) for key in ("add_bos_token", "bos_token")}
    return Tokenizer(tokenizer, name=getattr(tokenizer, "name_or_path", "") or name, settings=settings)


def _read(file: Path) -> dict[str, Any]:
    """Return the content of an optional JSON file, or an empty mapping without a file."""
    if not os.path.lexists(file):
        return {}
    content: dict[str, Any] = read_json(file, dict[str, Any], error=SourceError, remedy=AGAIN)
    return content


def gguf_tokenizer(file: Path, *, begins: bool) -> Tokenizer:
    """Return the tokenizer in a GGUF file as transformers rebuilds it; `SourceError` for one that cannot be rebuilt.

    ``begins`` says whether every text begins with a token.
    """
    with quiet() as transformers, read_quickly():
        try:
            tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
                file.parent, gguf_file=file.name, trust_remote_code=False, local_files_only=True
            )
            tokenizer.add_bos_token = begins and tokenizer.bos_token is not None
        except Exception as error:  # the metadata may be anything
            raise SourceError(f"the tokenizer in {file} cannot be read: give data=token ids in Python") from error
    return wrap_tokenizer(tokenizer)
