"""Corpora too large for memory: token ids in files, read where they lie."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import CorpusError
from ..files import make_folder, replacing, write_json
from .corpus import SPLITS, Corpus
from .vocabulary import Vocabulary

Ids = npt.NDArray[np.int64]
FORMAT = "softmax-bottleneck ids 1"
_DESCRIPTION, _VOCABULARY = "corpus.json", "vocabulary.json"
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
    write_json(folder / _VOCABULARY, list(vocabulary.tokens))
    tokens = {}
    for split in SPLITS:
        tokens[split] = 0
        with replacing(folder / f"{split}.ids") as temporary, temporary.open("wb") as file:
            for piece in splits[split]:
                file.write(piece.astype(_TYPE).tobytes())
                tokens[split] += len(piece)
    write_json(folder / _DESCRIPTION, {"format": FORMAT, "sha256": sha256, "tokens": tokens})


def is_whole(folder: Path) -> bool:
    """Return whether `write_ids` came to its end there and the files have their sizes."""
    return not list(_damaged(folder))


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
        raise CorpusError(f"{name} is not whole on this machine ({what}): run `bottleneck data get {name}` again")
    own = Vocabulary(tuple(json.loads((folder / _VOCABULARY).read_text(encoding="utf-8"))))
    if vocabulary is not None and vocabulary.tokens != own.tokens:
        raise CorpusError(f"{name} has a vocabulary of its own: measure a run on it that was trained on it")
    splits = {split: np.memmap(folder / f"{split}.ids", dtype=_TYPE, mode="c") for split in SPLITS}
    description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
    return Corpus(name=name, vocabulary=own, splits=splits, sha256=description["sha256"])


def _damaged(folder: Path) -> Iterator[str]:
    """Yield what is wrong with a corpus's files."""
    try:
        description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
        tokens = dict(description["tokens"])
        if description["format"] != FORMAT or set(tokens) != set(SPLITS) or not (folder / _VOCABULARY).is_file():
            yield f"{folder / _DESCRIPTION} was not written by this tool"
            return
    except (OSError, ValueError, KeyError, TypeError):
        yield f"there is no readable {folder / _DESCRIPTION}"
        return
    for split, count in tokens.items():
        file = folder / f"{split}.ids"
        if not file.is_file() or file.stat().st_size != count * _TYPE.itemsize:
            yield f"{file} is absent or has another size"
