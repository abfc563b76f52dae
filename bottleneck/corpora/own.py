"""A text of one's own, or token ids, with the vocabulary of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.files import exists, kind_of, sha256_bytes
from ..errors import CorpusError
from .corpus import Corpus, Text
from .registry import catalogue, load
from .vocabulary import Vocabulary


def read_data(data: Any, *, vocabulary: Vocabulary, split: str) -> Corpus:
    """Return what the argument ``data`` of a measurement means, as a corpus.

    Args:
        data: a corpus or its folder; a text file; a text of several words or a list of texts, tokens between spaces;
            or token ids, (N,).
        vocabulary: the tokens of the model.
        split: name of the only split of a text or of ids.

    Raises:
        CorpusError: for a corpus or file that cannot be read, or a token outside the vocabulary.
    """
    if isinstance(data, str | Path) and not _is_text(str(data)):
        path = Path(data)
        if ".jsonl" in path.suffixes:
            raise CorpusError(f"{path} is a file of JSON Lines, which only Hugging Face models read: give a .txt file")
        if not exists(path) or kind_of(path) == "a folder":
            return load(data, vocabulary=vocabulary)
        text = Text.read(path)
    elif isinstance(data, str) or (isinstance(data, Sequence) and all(isinstance(part, str) for part in data)):
        lines = [data] if isinstance(data, str) else data
        text = Text("the text", "\n".join(lines).encode())
    else:
        ids = np.asarray(data.detach().cpu() if hasattr(data, "detach") else data)
        ids = ids.reshape(-1) if ids.shape[:1] == (1,) else ids
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise CorpusError(
                f"data must be a corpus, a text file, texts or token ids (N,), not {ids.dtype} {ids.shape}"
            )
        vocabulary.decode(ids)
        return Corpus("token ids", vocabulary, {split: ids.astype(np.int64)}, sha256_bytes(ids.tobytes()))
    parts = [vocabulary.encode(line, f"{text.where}, line {number}") for number, line in enumerate(text.lines(), 1)]
    return Corpus(text.where, vocabulary, {split: np.concatenate(parts)}, sha256_bytes(text.data))


def _is_text(name: str) -> bool:
    """Return whether a string of several words names neither a corpus nor a file."""
    return len(name.split()) > 1 and not exists(Path(name)) and name not in {info.name for info in catalogue()}
