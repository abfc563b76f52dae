"""The text that a Hugging Face model reads: running text before it is encoded, and token ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import corpora
from ..core.files import sha256_bytes
from ..core.options import OPENING
from ..corpora import EOS, Text
from ..corpora.batches import Ids
from ..corpora.own import IN_MEMORY, given_data
from ..errors import ConfigurationError, CorpusError, Parameter, SourceError, first_line
from .tokenizer import Tokenizer

DATASET = Parameter("dataset", flag=OPENING["dataset"].flag)
DEFAULT_CORPUS = "python-docs"
"""Default corpus, which needs no download."""


@dataclass(frozen=True)
class RunningText:
    """A text before it is encoded."""

    name: str
    """Name of the corpus, file or dataset."""
    split: str | None
    text: str

    def encode(self, tokenizer: Tokenizer, *, bos: str, vocab_size: int) -> Tokens:
        """Return its tokens; see `Tokenizer.encode`."""
        ids, prefix = tokenizer.encode(self.text, bos=bos, vocab_size=vocab_size)
        return Tokens(self.name, self.split, sha256_bytes(self.text.encode()), ids, prefix, tokenizer)


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
    starts: Tensor = field(default_factory=partial(torch.zeros, 1, dtype=torch.int64))
    """int64, (n,), where each text begins."""
    is_running: bool = True
    """Whether there is one text, read in windows, in place of texts that are each read in a window of its own."""
    is_target: Tensor | None = None
    """Whether each token counts as a prediction, (N,); ``None`` for all."""

    def places(self, least: int) -> Tensor:
        """Return the indices of the predicted tokens, (T,): targets after at least ``least`` tokens of their text."""
        is_target = torch.ones(len(self.ids), dtype=torch.bool) if self.is_target is None else self.is_target.clone()
        is_target[self.starts.unsqueeze(1) + torch.arange(least)] = False
        return is_target.nonzero().squeeze(1)


def read_ids(texts: list[Ids], tokenizer: Tokenizer | None, *, vocab_size: int, window: int | None) -> Tokens:
    """Return the ids of texts; see `texts_of`.

    A single text that is longer than a ``window`` and the token after it is a running text, and any single text where
    ``window`` is ``None``.
    """
    if not any(is_target[1:].any() for _, is_target in texts):
        raise SourceError("no token is predicted: give texts of at least two tokens, the later ones targets")
    ids, is_target = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*texts, strict=True))
    if bool((ids < 0).any()) or bool((ids >= vocab_size).any()):
        raise SourceError(
            f"token ids must lie between 0 and {vocab_size - 1:,}, the last token with an input embedding, not "
            f"{int(ids.min()):,} to {int(ids.max()):,}"
        )
    starts = torch.tensor([0, *accumulate(len(text) for text, _ in texts)])[:-1]
    is_running = len(texts) == 1 and (window is None or len(ids) > window + 1)
    sha256 = sha256_bytes(b"".join(each.numpy().tobytes() for each in (ids, is_target, starts)))
    none = torch.empty(0, dtype=torch.int64)
    return Tokens("token ids", None, sha256, ids, none, tokenizer, starts, is_running, is_target)


def read_text(data: Any, split: str, *, dataset: str | None = None) -> RunningText:
    """Return a text: a given one, that of a corpus's split, or that of a dataset of the Hub.

    Words of a corpus are joined by spaces, characters by nothing, and lines by newlines.

    Args:
        data: a `Text`, a corpus, or what `given_data` takes.
        split: split of a corpus or a dataset of the Hub.
        dataset: name of a dataset of the Hub.

    Raises:
        ConfigurationError: for both ``data`` and ``dataset``, a dataset without the package ``datasets``, or a
            text file with a split.
        CorpusError: for a text that is missing, empty or not UTF-8.
    """
    if dataset is not None:
        if data is not None:
            raise ConfigurationError(Parameter("data"), " and ", DATASET, " each name a text: give one of them")
        return _dataset(dataset, split)
    given = data if isinstance(data, Text) else given_data(data)
    if isinstance(given, Text):
        if split != "test" and given.where != IN_MEMORY:  # the default
            raise ConfigurationError(
                f"split {split} does not apply to the text file {given.where}, which is read whole"
            )
        return RunningText(given.where, None, given.decoded())
    corpus = corpora.load(str(data or DEFAULT_CORPUS))
    between = "" if all(len(token) == 1 for token in corpus.vocabulary.tokens if token != EOS) else " "
    lines: list[list[str]] = [[]]
    for token in corpus.vocabulary.decode(corpus.split(split)):
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    return RunningText(corpus.name, split, "\n".join(map(between.join, lines)).removesuffix("\n"))


def _dataset(name: str, split: str) -> RunningText:
    try:
        import datasets
    except ImportError as error:
        raise ConfigurationError(DATASET, " needs the package datasets: pip install datasets") from error
    path, _, configuration = name.partition(":")
    split_name = {"valid": "validation"}.get(split, split)
    try:
        rows = datasets.load_dataset(path, configuration or None, split=split_name, trust_remote_code=False)
    except Exception as error:  # the package raises errors of many others'
        raise CorpusError(f"the data set {name} cannot be loaded, split {split}: {first_line(error)}") from error
    texts: list[Any] = [text for text in rows["text"] if text is not None] if "text" in rows.column_names else [None]
    if not all(isinstance(text, str) for text in texts):
        raise CorpusError(
            f"the data set {name} has no column 'text' with texts (its columns are {', '.join(rows.column_names)}); "
            "save the text as a .txt file and pass it with ",
            Parameter("data"),
        )
    return RunningText(name, split, "\n".join(texts))
