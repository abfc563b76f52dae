"""Running text for models with a tokenizer of their own, and its token ids."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ... import corpora
from ...corpora import EOS
from ...errors import ConfigurationError, CorpusError, SourceError
from ...files import sha256_bytes
from ..text import Text
from .hf_model import quiet

VOCABULARY_FILES = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json")
"""What tokenizers are kept in: one's own format, SentencePiece's, BPE's and WordPiece's, tiktoken's, Mistral's."""
DEFAULT_CORPUS = "python-docs"
"""What is measured on when nobody says otherwise: it is there without a download."""


@dataclass(frozen=True)
class RunningText:
    """A text before it is encoded."""

    name: str
    """Of the corpus, file or data set."""
    split: str | None
    text: str

    @property
    def sha256(self) -> str:
        """Of the text in UTF-8."""
        return sha256_bytes(self.text.encode())


def read_text(data: str | None, split: str, *, dataset: str | None) -> RunningText:
    """Return the text of a corpus's split, of a ``.txt`` file, or of a data set of the hub.

    A corpus's tokens are joined by spaces, or by nothing where they are characters, and its lines by newlines.

    Raises:
        ConfigurationError: for both ``data`` and ``dataset``, or a data set without the package ``datasets``.
        CorpusError: for a text that is not there, empty or not UTF-8.
    """
    if dataset is not None:
        if data is not None:
            raise ConfigurationError("--data and --hf-dataset each name a text: give one of them")
        return _dataset(dataset, split)
    name = data or DEFAULT_CORPUS
    if name.endswith(".txt"):
        return RunningText(name, None, _file(Path(name)))
    corpus = corpora.load(name)
    between = "" if all(len(token) == 1 for token in corpus.vocabulary.tokens if token != EOS) else " "
    lines: list[list[str]] = [[]]
    for token in corpus.vocabulary.decode(corpus.split(split)):
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    return RunningText(corpus.name, split, "\n".join(map(between.join, lines)).removesuffix("\n"))


def _file(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; give a text file") from error
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path}: the byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8; save the file as UTF-8"
        ) from None
    if not text.strip():
        raise CorpusError(f"{path} is empty: give a file with text")
    return text


def _dataset(name: str, split: str) -> RunningText:
    try:
        import datasets
    except ImportError as error:
        raise ConfigurationError("--hf-dataset needs the package datasets: pip install datasets") from error
    path, _, configuration = name.partition(":")
    try:
        named = {"valid": "validation"}.get(split, split)
        rows = datasets.load_dataset(path, configuration or None, split=named, trust_remote_code=False)
    except Exception as error:  # the package raises errors of many others'
        raise CorpusError(
            f"the data set {name} cannot be loaded, split {split}: {(str(error).splitlines() or [repr(error)])[0]}"
        ) from error
    if "text" not in rows.column_names:
        raise CorpusError(
            f"the data set {name} has no column 'text' (its columns are {', '.join(rows.column_names)}); save the "
            "text as a .txt file and pass it with --data"
        )
    texts = [text for text in rows["text"] if text is not None]
    if not all(isinstance(text, str) for text in texts):
        raise CorpusError(f"the column 'text' of the data set {name} holds no text: pass another data set, or --data")
    return RunningText(name, split, "\n".join(texts))


class Tokenizer:
    """A model's own tokenizer.

    Args:
        path: the model's folder.

    Raises:
        SourceError: when there is none, or it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Without files transformers makes an empty tokenizer of the model's type.
        if not any(list(path.glob(pattern)) for pattern in VOCABULARY_FILES):
            raise SourceError(f"{path} has no tokenizer; put the model's tokenizer.json beside its weights")
        with quiet() as transformers:
            try:
                whole = path / "tokenizer.json"
                # A tokenizer.json says everything; the class that goes by a model's type may not be its own.
                self._tokenizer: Any = (
                    transformers.PreTrainedTokenizerFast(tokenizer_file=str(whole))
                    if whole.exists()
                    else transformers.AutoTokenizer.from_pretrained(
                        path, trust_remote_code=False, local_files_only=True
                    )
                )
                self.size = 1 + max(self._tokenizer.get_vocab().values())
            except Exception as error:  # tokenizers raises bare ones
                if code := self._code():
                    raise SourceError(
                        f"the tokenizer of {path} is code of its own (auto_map names {code}), and no code that comes "
                        "with a model is run here: put its tokenizer.json beside its weights"
                    ) from error
                reason = (str(error).strip().splitlines() or [repr(error)])[0]
                raise SourceError(
                    f"{path} has no tokenizer that can be read ({reason}); put its tokenizer.json beside its weights"
                ) from error

    def encode(self, text: str, *, vocab_size: int) -> Tensor:
        """Return the ids of a text, int64 (N,), without special tokens.

        Raises:
            SourceError: when one is outside the model's vocabulary, or the text's words all become the same one.
        """
        ids = self._checked(self._ids(text, special=False), vocab_size)
        different = ids.unique().tolist()
        if len(different) < 2 and (len(ids) > 1 or len(text.split()) > 1):
            made = "".join(f", {self._tokenizer.convert_ids_to_tokens(one)!r} ({one})" for one in different)
            raise SourceError(
                f"the tokenizer of {self._path} makes {'one' if made else 'no'} token of the whole text{made}: put the "
                "model's own tokenizer beside it, or give another text"
            )
        return ids

    def _ids(self, text: str, *, special: bool) -> list[int]:
        with quiet():
            try:
                found: list[int] = self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
            except Exception as error:  # tokenizers raises bare ones
                raise SourceError(f"the tokenizer of {self._path} cannot encode the text: {error}") from error
        return found

    def prefix(self, bos: str, text: str, *, vocab_size: int) -> Tensor:
        """Return the ids that come before every window, int64 (n,); see `HuggingFaceOptions.bos`.

        Args:
            bos: ``"auto"``, ``"on"`` or ``"off"``.
            text: a piece of what is measured, to see what the tokenizer puts before it.
            vocab_size: of the model.

        Raises:
            SourceError: when there is no token for ``"on"``, or it is outside the model's vocabulary.
        """
        if bos == "off":
            return torch.empty(0, dtype=torch.int64)
        plain, whole = self._ids(text, special=False), self._ids(text, special=True)
        places = (place for place in range(len(whole)) if plain and whole[place : place + len(plain)] == plain)
        found = whole[: next(places, 0)]
        if not found and (bos == "on" or self._settings("tokenizer_config.json").get("add_bos_token") is True):
            found = self._first_token()
        if not found and bos == "on":
            raise SourceError(f"the tokenizer of {self._path} names no token that begins a text: leave out --bos on")
        return self._checked(found, vocab_size)

    def _first_token(self) -> list[int]:
        """Return the beginning-of-sequence token, if one is named."""
        for file in ("tokenizer_config.json", "special_tokens_map.json"):
            token = self._settings(file).get("bos_token")
            token = token.get("content") if isinstance(token, dict) else token
            if token and (number := self._tokenizer.get_vocab().get(token)) is not None:
                return [number]
        return []

    def _code(self) -> str:
        """Return the names of the classes that ``tokenizer_config.json`` has in a file of its own, if any."""
        classes = self._settings("tokenizer_config.json").get("auto_map")
        if isinstance(classes, dict):
            classes = classes.get("AutoTokenizer")
        names = classes if isinstance(classes, list) else []
        return ", ".join(str(name).rpartition(".")[2] for name in names if name)

    def _settings(self, file: str) -> dict[str, Any]:
        """Return what stands beside the tokenizer, or nothing where it cannot be read: it works without."""
        try:
            found = json.loads((self._path / file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _checked(self, found: list[int], vocab_size: int) -> Tensor:
        # Tokenizers written in Python give any number, or none for what they do not know.
        outside = [token for token in found if token is None or not 0 <= token < vocab_size]
        if outside:
            raise SourceError(
                f"the tokenizer of {self._path} makes the token {outside[0]}, and the model has {vocab_size:,}, "
                "numbered from 0: put the model's own tokenizer beside it"
            )
        return torch.tensor(found, dtype=torch.int64)

    def tokens(self, ids: list[int]) -> list[str]:
        """Return each token as text."""
        return [self._tokenizer.decode([token]) if token < self.size else f"<{token}>" for token in ids]

    def text(self, ids: list[int]) -> str:
        """Return consecutive tokens as text."""
        return str(self._tokenizer.decode(ids))


@final
class TokenizedText(Text):
    """A text as a model's tokenizer cuts it."""

    def __init__(self, ids: NDArray[np.int64], tokenizer: Tokenizer, *, first: int) -> None:
        super().__init__(ids, first=first)
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
