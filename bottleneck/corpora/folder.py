"""A corpus of the user's own: a folder with ``train.txt``, ``valid.txt`` and ``test.txt``."""

from __future__ import annotations

from pathlib import Path

from ..errors import CorpusError
from .corpus import SPLITS, Corpus, Text, corpus_of
from .vocabulary import Vocabulary


def load_folder(folder: Path, *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return the corpus in ``folder``: lines of space-separated tokens, UTF-8; each line gets an `EOS`.

    The corpus's name is the folder's absolute path, so that a run finds its corpus again from anywhere.
    `CorpusError` when a file is missing, unreadable, empty, not UTF-8, or does not fit ``vocabulary``.
    """
    texts = {split: Text(where=str(folder / f"{split}.txt"), data=_read(folder, split)) for split in SPLITS}
    return corpus_of(str(folder.resolve()), texts, vocabulary=vocabulary)


def _read(folder: Path, split: str) -> bytes:
    file = folder / f"{split}.txt"
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise CorpusError(
            f"{file} is missing: a corpus folder holds {', '.join(f'{split}.txt' for split in SPLITS)}"
        ) from None
    except OSError as error:
        raise CorpusError(f"cannot read {file}: {error.strerror}; make it a readable text file") from error
