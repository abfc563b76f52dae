"""A corpus in memory, and the one way from three texts to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import CorpusError
from ..files import sha256_bytes
from .vocabulary import EOS, Vocabulary

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class Corpus:
    """Three splits of text as token ids.

    ``name`` is what `load` takes. ``splits`` maps ``"train"``, ``"valid"``, ``"test"`` to 1-D int64 arrays.
    ``sha256`` covers the raw bytes of the three texts, so that a changed corpus is noticed.
    """

    name: str
    vocabulary: Vocabulary
    splits: Mapping[str, npt.NDArray[np.int64]]
    sha256: str

    def split(self, name: str) -> npt.NDArray[np.int64]:
        """Return the token ids of one split; `CorpusError` when there is no such split."""
        if name not in self.splits:
            raise CorpusError(f"{self.name} has no split {name!r}: choose one of {', '.join(self.splits)}")
        return self.splits[name]


@dataclass(frozen=True)
class Text:
    """One split before it is encoded: UTF-8 ``data``, a sentence a line, and ``where`` it came from."""

    where: str
    data: bytes

    def lines(self) -> list[list[str]]:
        """Return each line's tokens and `EOS`, as Mikolov's PTB scripts and AWD-LSTM read them.

        A blank line is a lone `EOS`: WikiText-2 has 245,569 test tokens only so. `CorpusError` when the data
        is not UTF-8 or holds no token.
        """
        try:
            text = self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise CorpusError(
                f"{self.where}, line {line}: the byte 0x{error.object[error.start]:02x} is not UTF-8; "
                f"save the file as UTF-8"
            ) from None
        if not text.strip():
            raise CorpusError(f"{self.where} is empty: a split needs lines of tokens separated by spaces")
        # Not splitlines(): that also breaks at form feeds and U+2028, which are spaces inside a line.
        return [[*line.split(), EOS] for line in text.removesuffix("\n").split("\n")]


def corpus_of(name: str, texts: Mapping[str, Text], *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return the corpus of three ``texts``, keyed by `SPLITS`.

    Without ``vocabulary`` it is made of the tokens of all three splits, train first, as the papers do
    (AWD-LSTM's ``data.py``, after which PTB has 10,000 types). With one, a token outside it is a
    `CorpusError` that names the text and the line.
    """
    lines = {split: texts[split].lines() for split in SPLITS}
    if vocabulary is None:
        vocabulary = Vocabulary.of(chain.from_iterable(chain.from_iterable(lines.values())))
    splits = {
        split: np.concatenate(list(_encoded(lines[split], vocabulary, where=texts[split].where))) for split in SPLITS
    }
    # Hashes of hashes: text moved from the end of one split to the start of the next is a change too.
    digests = "".join(f"{sha256_bytes(texts[split].data)}  {split}\n" for split in SPLITS)
    return Corpus(name=name, vocabulary=vocabulary, splits=splits, sha256=sha256_bytes(digests.encode()))


def load_folder(folder: Path, *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return the corpus in ``folder``: ``train.txt``, ``valid.txt`` and ``test.txt``, UTF-8, tokens between spaces.

    Its name is the folder's absolute path, so that a run finds its corpus again from anywhere. `CorpusError` when a
    file is missing, unreadable, empty, not UTF-8, or does not fit ``vocabulary``.
    """
    texts = {}
    for split in SPLITS:
        file = folder / f"{split}.txt"
        try:
            texts[split] = Text(where=str(file), data=file.read_bytes())
        except FileNotFoundError:
            holds = ", ".join(f"{split}.txt" for split in SPLITS)
            raise CorpusError(f"{file} is missing: a corpus folder holds {holds}") from None
        except OSError as error:
            raise CorpusError(f"cannot read {file}: {error.strerror}; make it a readable text file") from error
    return corpus_of(str(folder.resolve()), texts, vocabulary=vocabulary)


def _encoded(lines: list[list[str]], vocabulary: Vocabulary, *, where: str) -> Iterator[npt.NDArray[np.int64]]:
    for number, line in enumerate(lines, 1):
        yield vocabulary.encode(line, f"{where}, line {number}")
