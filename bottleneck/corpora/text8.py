"""text8: a hundred million characters of Wikipedia, only letters and spaces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..errors import CorpusError
from .download import ByteCallback
from .ids import write_ids
from .sources import PinnedFile, Pins, find
from .vocabulary import Vocabulary

NAME = "text8"
FILE = PinnedFile(
    NAME,
    NAME,
    size=100_000_000,
    sha256="6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7",
    url="http://mattmahoney.net/dc/text8.zip",
)
TOKENS = {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}
"""The first 90M characters, the next 5M and the last 5M (Mikolov et al. 2012; Yang et al. 2018, appendix C.2)."""
VOCABULARY = Vocabulary((" ", *"abcdefghijklmnopqrstuvwxyz"))


def prepare(folder: Path, *, source: Path | None, url: str | None, progress: ByteCallback | None) -> None:
    """Encode the text as ids in ``folder``, one token for each character.

    The text comes from ``source``, a file or archive, or is downloaded from ``url``.

    Raises:
        CorpusError: for a source that is missing or not the pinned text.
    """
    pins = Pins(NAME, (FILE,))
    origin = source or url or FILE.url
    archives = find(pins, origin, progress=progress)
    if FILE not in archives:
        raise CorpusError(f"there is no {NAME} in {origin}: give the file {NAME} or its zip archive")
    write(folder, archives[FILE], tokens=TOKENS, sha256=FILE.sha256)


def write(folder: Path, data: bytes, *, tokens: Mapping[str, int], sha256: str) -> None:
    """Write characters as ids.

    Args:
        folder: where they go.
        data: letters from a to z and spaces.
        tokens: how many of them each split has, one after the other.
        sha256: of what the ids were made from.
    """
    number = np.full(256, -1, np.int64)
    number[np.frombuffer("".join(VOCABULARY.tokens).encode(), np.uint8)] = np.arange(len(VOCABULARY))
    pieces = np.split(np.frombuffer(data, np.uint8), np.cumsum(list(tokens.values()))[:-1])
    splits = {split: [number[piece]] for split, piece in zip(tokens, pieces, strict=True)}
    write_ids(folder, VOCABULARY, splits, sha256=sha256)
