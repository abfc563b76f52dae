"""The text that a Hugging Face model reads: running text before it is encoded, and token ids."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from .. import corpora
from ..core.files import sha256_bytes
from ..core.options import OPENING
from ..corpora import EOS, RawText
from ..corpora.batches import Ids
from ..corpora.own import IN_MEMORY, given_data
from ..errors import ConfigurationError, CorpusError, Parameter, SourceError, first_line
from ..language_models.text import Text
from .tokenizer import Tokenizer

DATASET = Parameter("dataset", flag=OPENING["dataset"].flag)
DEFAULT_CORPUS = "python-docs"
"""Default corpus, which needs no download."""


def read_ids(texts: list[Ids], tokenizer: Tokenizer | None, *, vocab_size: int, name: str) -> Text:
    """Return the ids of texts, each a part; see `texts_of`."""
    if not any(is_target[1:].any() for _, is_target in texts):
        raise SourceError("no token is predicted: give texts of at least two tokens, the later ones targets")
    ids, is_target = (np.concatenate(parts) for parts in zip(*texts, strict=True))
    if (ids < 0).any() or (ids >= vocab_size).any():
        raise SourceError(
            f"token ids must lie between 0 and {vocab_size - 1:,}, the last token with an input embedding, not "
            f"{int(ids.min()):,} to {int(ids.max()):,}"
        )
    starts = np.array([0, *accumulate(len(text) for text, _ in texts)])[:-1]
    sha256 = sha256_bytes(b"".join(each.tobytes() for each in (ids, is_target, starts)))
    is_target[starts] = False
    scored = np.flatnonzero(is_target)
    return Text(ids=ids, starts=starts, scored=scored, tokenizer=tokenizer, name=name, sha256=sha256)


def read_text(data: Any, split: str, *, dataset: str | None = None) -> RawText:
    """Return a text: a given one, that of a corpus's split, or that of a dataset of the Hub.

    Words of a corpus are joined by spaces, characters by nothing, and lines by newlines.

    Args:
        data: a `RawText`, a corpus, or what `given_data` takes.
        split: split of a corpus or a dataset of the Hub.
        dataset: name of a dataset of the Hub.

    Raises:
        ConfigurationError: for a dataset without the package ``datasets``, or a text file with a split.
        CorpusError: for a text that is missing, empty or not UTF-8.
    """
    if dataset is not None:
        return _dataset(dataset, split)
    given = data if isinstance(data, RawText) else given_data(data)
    if isinstance(given, RawText):
        if split != "test" and given.where != IN_MEMORY:  # the default
            raise ConfigurationError(
                f"split {split} does not apply to the text file {given.where}, which is read whole"
            )
        return given
    corpus = corpora.load(DEFAULT_CORPUS if data is None else str(data))
    lines: list[list[str]] = [[]]
    for token in corpus.vocabulary.decode(corpus.split(split)):
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    written = "\n".join(map(corpus.vocabulary.separator.join, lines)).removesuffix("\n")
    return RawText(corpus.name, written.encode(), split)


def _dataset(name: str, split: str) -> RawText:
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
    return RawText.joined(name, texts, split)
