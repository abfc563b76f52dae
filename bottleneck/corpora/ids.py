"""Corpora too large for memory: token ids in files, read where they lie."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CorpusError
from ..files import json_bytes, make_folder, replacing, sha256_bytes, sha256_file, sha256_json, write_bytes, write_json
from .corpus import SPLITS, Corpus
from .vocabulary import Vocabulary

Ids = npt.NDArray[np.int64]
FORMAT = "softmax-bottleneck ids 1"
_DESCRIPTION, _VOCABULARY, _CHECKSUM = "corpus.json", "vocabulary.json", "checksum"
_TYPE = np.dtype("<i8")


def write_ids(folder: Path, vocabulary: Vocabulary, splits: Mapping[str, Iterable[Ids]], *, sha256: str) -> None:
    """Write a corpus; the file that says that it is whole comes last.

    Args:
        folder: made when it is not there.
        vocabulary: of the ids.
        splits: for each of `SPLITS` its ids, piece by piece.
        sha256: of what the ids were made from.
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
        files[f"{split}.ids"] = digest.hexdigest()
    description = {"format": FORMAT, "sha256": sha256, "tokens": tokens, "files": files}
    write_json(folder / _DESCRIPTION, {**description, _CHECKSUM: sha256_json(description)})


def is_ids(folder: Path) -> bool:
    """Return whether a folder holds what `write_ids` wrote, whole or not."""
    try:
        return bool(json.loads((folder / _DESCRIPTION).read_bytes())["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_whole(folder: Path, *, ids: bool = False) -> bool:
    """Return whether `write_ids` came to its end there and the files have their sizes; with ``ids``, their bytes."""
    try:
        _checked(folder, *(f"{split}.ids" for split in SPLITS if ids))
    except CorpusError:
        return False
    return True


def read_ids(folder: Path, *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return a corpus whose ids stay in their files (`numpy.memmap`, private: what is changed is not written).

    Args:
        folder: as `write_ids` left it; the corpus has its name.
        vocabulary: a run's; it must be the corpus's own.

    Raises:
        CorpusError: a file is absent or has another size, or the vocabulary is another one.
    """
    description = _checked(folder)
    own = Vocabulary(tuple(json.loads((folder / _VOCABULARY).read_bytes())))
    if vocabulary is not None and vocabulary.tokens != own.tokens:
        raise CorpusError(f"{folder.name} has a vocabulary of its own: measure a run on it that was trained on it")
    return Corpus(name=folder.name, vocabulary=own, splits=_Splits(folder), sha256=description["sha256"])


class _Splits(Mapping[str, Ids]):
    """The ids of each split, checked when they are first asked for: the files may be gigabytes."""

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
    """Return the description of a corpus whose ids have their sizes, and ``files`` and the vocabulary their bytes.

    Raises:
        CorpusError: something is absent, or not as it was written.
    """
    try:
        description: dict[str, Any] = json.loads((folder / _DESCRIPTION).read_bytes())
        if description["format"] != FORMAT or description.pop(_CHECKSUM) != sha256_json(description):
            raise ValueError(f"{_DESCRIPTION} is not as it was written")
        for split in SPLITS:
            if (folder / f"{split}.ids").stat().st_size != description["tokens"][split] * _TYPE.itemsize:
                raise ValueError(f"{split}.ids has another size than it was written with")
        for file in (_VOCABULARY, *files):
            if sha256_file(folder / file) != description["files"][file]:
                raise ValueError(f"{file} is not as it was written")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(
            f"{folder.name} is not whole on this machine ({error}): run `bottleneck data get {folder.name}` again"
        ) from error
    return description
