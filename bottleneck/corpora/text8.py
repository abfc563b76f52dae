"""text8: a hundred million characters of Wikipedia, letters and spaces alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..errors import CorpusError
from ..files import sha256_bytes
from .archives import is_archive, read_members
from .download import ByteCallback, download
from .ids import write_ids
from .vocabulary import Vocabulary

NAME = "text8"
SHA256 = "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"
SIZE = 100_000_000
URL = "http://mattmahoney.net/dc/text8.zip"
TOKENS = {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}
"""The first 90M characters, the next 5M and the last 5M (Mikolov et al. 2012; MoS paper, appendix C.2)."""
VOCABULARY = Vocabulary((" ", *"abcdefghijklmnopqrstuvwxyz"))


def prepare(folder: Path, *, source: Path | None, url: str | None, progress: ByteCallback | None) -> None:
    """Turn the text into ids, a character a token.

    Args:
        folder: where they go.
        source: the file ``text8`` or its zip archive; ``None`` downloads it.
        url: of the archive, when not the usual one.
        progress: called while downloading.

    Raises:
        CorpusError: the source is not there or not the pinned text.
    """
    data = _read(source) if source is not None else download(url or URL, limit=SIZE, progress=progress)
    where = str(source or url or URL)
    if is_archive(data):
        members = list(read_members(data, where=where, largest=SIZE, total=SIZE))
        if len(members) != 1:
            raise CorpusError(f"{where} holds {len(members)} files, not the one of {NAME}: get {URL}")
        data = members[0][1]
    if sha256_bytes(data) != SHA256:
        raise CorpusError(
            f"{where} is not {NAME}: SHA-256 {sha256_bytes(data)[:12]}… with {len(data):,} bytes, expected "
            f"{SHA256[:12]}… with {SIZE:,}; get an unchanged copy"
        )
    write(folder, data, tokens=TOKENS, sha256=SHA256)


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
    characters = np.frombuffer(data, np.uint8)
    ends = np.cumsum(list(tokens.values()))
    pieces = dict(zip(tokens, np.split(characters, ends[:-1]), strict=True))
    write_ids(folder, VOCABULARY, {split: [number[piece]] for split, piece in pieces.items()}, sha256=sha256)


def _read(source: Path) -> bytes:
    file = source / NAME if source.is_dir() else source
    try:
        if file.stat().st_size > SIZE:
            raise CorpusError(f"{file} has more than the {SIZE:,} bytes of {NAME}: it is something else")
        return file.read_bytes()
    except OSError as error:
        raise CorpusError(f"cannot read {file}: {error.strerror}; give the file {NAME} or its zip archive") from error
