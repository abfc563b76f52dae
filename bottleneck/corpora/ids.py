"""Corpora too large for memory: token ids in files, read where they lie."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.files import (
    json_bytes,
    make_folder,
    replacing,
    sha256_bytes,
    sha256_file,
    sha256_json,
    write_bytes,
    write_json,
)
from ..core.json_file import json_if_any, parse_json, read_json
from ..errors import CorpusError
from .corpus import SPLITS, Corpus
from .vocabulary import Vocabulary

Ids = npt.NDArray[np.int64]
FORMAT = "softmax-bottleneck ids 1"
_DESCRIPTION, _VOCABULARY, _CHECKSUM = "corpus.json", "vocabulary.json", "checksum"
_TYPE = np.dtype("<i8")


def write_ids(folder: Path, vocabulary: Vocabulary, splits: Mapping[str, Iterable[Ids]], *, sha256: str) -> None:
    """Write a corpus, given the ids of each of `SPLITS`, piece by piece, and the SHA-256 of the text they come from.

    The description, which marks it as complete, is written last. `CorpusError` for a split without a token.
    """
    make_folder(folder)
    (folder / _DESCRIPTION).unlink(missing_ok=True)
    words = json_bytes(list(vocabulary.tokens))
    write_bytes(folder / _VOCABULARY, words)
    tokens, files = {}, {_VOCABULARY: sha256_bytes(words)}
    for split in SPLITS:
        tokens[split], digest = 0, hashlib.sha256()
        with replacing(folder / f"{split}.ids") as temporary, temporary.open("wb") as file:
            for piece in splits[split]:
                data = piece.astype(_TYPE).tobytes()
                digest.update(data)
                file.write(data)
                tokens[split] += len(piece)
            if not tokens[split]:
                raise CorpusError(f"the {split} split of {folder.name} is empty: give files with text")
        files[f"{split}.ids"] = digest.hexdigest()
    description = {"format": FORMAT, "sha256": sha256, "tokens": tokens, "files": files}
    write_json(folder / _DESCRIPTION, {**description, _CHECKSUM: sha256_json(description)})


def is_ids(folder: Path) -> bool:
    """Return whether a folder holds a corpus from `write_ids`, complete or not."""
    description = json_if_any(folder / _DESCRIPTION)
    return isinstance(description, dict) and description.get("format") == FORMAT


def is_whole(folder: Path, *, ids: bool = False) -> bool:
    """Return whether a folder holds a complete corpus, by its files' sizes and, with ``ids``, by their hashes."""
    try:
        _checked(folder, *(f"{split}.ids" for split in SPLITS if ids))
    except CorpusError:
        return False
    return True


def read_ids(folder: Path, *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return the corpus in a folder, whose ids stay in their files (`numpy.memmap`, private: changes are not written).

    `CorpusError` for a file that is missing or has another size, or for another ``vocabulary`` than that of the corpus.
    """
    description = _checked(folder)
    remedy = f"run `bottleneck data get {folder.name}` again"
    saved = Vocabulary(tuple(read_json(folder / _VOCABULARY, list[str], error=CorpusError, remedy=remedy)))
    if vocabulary is not None and vocabulary.tokens != saved.tokens:
        raise CorpusError(f"{folder.name} has another vocabulary: measure a run that was trained on {folder.name}")
    return Corpus(name=folder.name, vocabulary=saved, splits=_Splits(folder), sha256=description["sha256"])


class _Splits(Mapping[str, Ids]):
    """The ids of each split, whose files may have gigabytes and are checked on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._read = folder, dict[str, Ids]()

    def __getitem__(self, split: str) -> Ids:
        if split not in SPLITS:
            raise KeyError(split)
        if split not in self._read:
            file = f"{split}.ids"
            _checked(self._folder, file)
            self._read[split] = np.memmap(self._folder / file, dtype=_TYPE, mode="c")
        return self._read[split]

    def __iter__(self) -> Iterator[str]:
        return iter(SPLITS)

    def __len__(self) -> int:
        return len(SPLITS)


def _checked(folder: Path, *files: str) -> dict[str, Any]:
    """Return the description of a corpus; `CorpusError` for another size of the ids or another hash of ``files``."""
    try:
        description: dict[str, Any] = parse_json((folder / _DESCRIPTION).read_bytes(), dict[str, Any])
        if description["format"] != FORMAT or description.pop(_CHECKSUM) != sha256_json(description):
            raise ValueError(f"{_DESCRIPTION} has changed since it was written")
        for split in SPLITS:
            if (folder / f"{split}.ids").stat().st_size != description["tokens"][split] * _TYPE.itemsize:
                raise ValueError(f"{split}.ids has another size than it was written with")
        for file in (_VOCABULARY, *files):
            if sha256_file(folder / file) != description["files"][file]:
                raise ValueError(f"{file} has changed since it was written")
    except (OSError, ValueError, KeyError) as error:
        raise CorpusError(
            f"{folder.name} is not whole on this machine ({error}): run `bottleneck data get {folder.name}` again"
        ) from error
    return description
