"""Corpora too large for memory: token ids in files, read where they lie."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

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
    """Write a corpus; what says that it is whole comes last.

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
        return bool(json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_whole(folder: Path, *, ids: bool = False) -> bool:
    """Return whether `write_ids` came to its end there and the files have their sizes; with ``ids``, their bytes."""
    return not list(_damaged(folder, ids=ids))


def read_ids(name: str, folder: Path, *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return a corpus whose ids stay in their files (`numpy.memmap`, private: what is changed is not written).

    Args:
        name: of the corpus.
        folder: as `write_ids` left it.
        vocabulary: a run's; it must be the corpus's own.

    Raises:
        CorpusError: a file is absent or has another size, or the vocabulary is another one.
    """
    for what in _damaged(folder):
        raise CorpusError(_not_whole(name, what))
    own = Vocabulary(tuple(json.loads((folder / _VOCABULARY).read_text(encoding="utf-8"))))
    if vocabulary is not None and vocabulary.tokens != own.tokens:
        raise CorpusError(f"{name} has a vocabulary of its own: measure a run on it that was trained on it")
    description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
    splits = _Splits(name, folder, description.get("files", {}))
    return Corpus(name=name, vocabulary=own, splits=splits, sha256=description["sha256"])


class _Splits(Mapping[str, Ids]):
    """The ids of each split, checked when they are first asked for: the files may be gigabytes."""

    def __init__(self, name: str, folder: Path, hashes: Mapping[str, str]) -> None:
        self._name, self._folder, self._hashes = name, folder, hashes
        self._read: dict[str, Ids] = {}

    def __getitem__(self, split: str) -> Ids:
        if split not in SPLITS:
            raise KeyError(split)
        if split not in self._read:
            file = self._folder / f"{split}.ids"
            for what in _changed(file, self._hashes):
                raise CorpusError(_not_whole(self._name, what))
            self._read[split] = np.memmap(file, dtype=_TYPE, mode="c")
        return self._read[split]

    def __iter__(self) -> Iterator[str]:
        return iter(SPLITS)

    def __len__(self) -> int:
        return len(SPLITS)


def _not_whole(name: str, what: str) -> str:
    return f"{name} is not whole on this machine ({what}): run `bottleneck data get {name}` again"


def _changed(file: Path, hashes: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence when a file is not as it was written; older corpora have no hashes."""
    if file.name in hashes and sha256_file(file) != hashes[file.name]:
        yield f"{file} is not as it was written"


def _damaged(folder: Path, *, ids: bool = False) -> Iterator[str]:
    """Yield what is wrong with a corpus's files; of the ids, with ``ids`` alone, more than their sizes."""
    try:
        description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
        tokens, hashes = dict(description["tokens"]), dict(description.get("files", {}))
        if description["format"] != FORMAT or set(tokens) != set(SPLITS) or not (folder / _VOCABULARY).is_file():
            yield f"{folder / _DESCRIPTION} was not written by this tool"
            return
        if description.pop(_CHECKSUM, None) not in (None, sha256_json(description)):
            yield f"{folder / _DESCRIPTION} is not as it was written"
            return
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        yield f"there is no readable {folder / _DESCRIPTION}"
        return
    yield from _changed(folder / _VOCABULARY, hashes)
    for split, count in tokens.items():
        file = folder / f"{split}.ids"
        if not file.is_file() or file.stat().st_size != count * _TYPE.itemsize:
            yield f"{file} is absent or has another size"
        elif ids:
            yield from _changed(file, hashes)
