"""text8: a hundred million characters of Wikipedia, only letters and spaces."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..core.progress import Progress
from .ids import write_ids
from .sources import PinnedFile, find_pinned
from .vocabulary import Vocabulary

NAME = "text8"
FILE = PinnedFile(
    NAME,
    NAME,
    size=100_000_000,
    sha256="6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7",
)
TOKENS = {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}
"""The first 90M characters, the next 5M and the last 5M (Mikolov et al. 2012; Yang et al. 2018, appendix C.2)."""
VOCABULARY = Vocabulary((" ", *"abcdefghijklmnopqrstuvwxyz"))


def prepare(folder: Path, *, source: Path | None, progress: Progress) -> None:
    """Encode the text of ``source`` as ids in ``folder``, a token for each character; `CorpusError` for another."""
    assert source is not None, "it has an address"
    texts = find_pinned([FILE], source, corpus=NAME)
    number = np.full(256, -1, np.int64)
    number[np.frombuffer("".join(VOCABULARY.tokens).encode(), np.uint8)] = np.arange(len(VOCABULARY))
    pieces = np.split(np.frombuffer(texts[FILE], np.uint8), np.cumsum(list(TOKENS.values()))[:-1])
    splits = {split: [number[piece]] for split, piece in zip(TOKENS, pieces, strict=True)}
    write_ids(folder, VOCABULARY, splits, sha256=FILE.sha256)
