"""A corpus in memory, made from three texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from ..core.files import open_file, sha256_bytes
from ..errors import CorpusError
from .vocabulary import EOS, Vocabulary

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Three splits of text as token ids."""

    name: str
    """The name that `load` takes."""
    vocabulary: Vocabulary
    splits: Mapping[str, npt.NDArray[np.int64]]
    """Token ids, int64, (N,), of ``"train"``, ``"valid"`` and ``"test"``."""
    sha256: str
    """SHA-256 of the raw bytes of the three texts, which shows whether a corpus was changed."""
    starts: npt.NDArray[np.int64] | None = None
    """Where each text begins, (n,), if the only split holds several, each of which is read from its first token."""

    def __repr__(self) -> str:
        """Return the name, the size of the vocabulary and those of the splits."""
        sizes = ", ".join(f"{split} {len(ids):,}" for split, ids in self.splits.items())
        return f"Corpus({self.name!r}, {len(self.vocabulary):,} types, tokens: {sizes})"

    def split(self, name: str) -> npt.NDArray[np.int64]:
        """Return the token ids of one split; `CorpusError` when there is no such split."""
        if name not in [*self.splits]:
            raise CorpusError(f"{self.name} has no split {name!r}: choose one of {', '.join(self.splits)}")
        return self.splits[name]


@dataclass(frozen=True)
class RawText:
    """A text before it is encoded: ``data`` in UTF-8, ``where`` it came from, and the split of a data set."""

    where: str
    data: bytes
    split: str | None = None
    sizes: tuple[int, ...] = ()
    """Bytes of each text, with a newline, of several that were joined."""

    @classmethod
    def joined(cls, where: str, texts: Iterable[str], split: str | None = None) -> Self:
        """Return texts joined by newlines; `CorpusError` for half a surrogate, which is not UTF-8."""
        try:
            parts = [text.encode() for text in texts]
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise CorpusError(f"{where} holds {half!a}, half of a surrogate pair, which is not a character") from error
        return cls(where, b"\n".join(parts), split, tuple(len(part) + 1 for part in parts))

    @classmethod
    def read(cls, file: Path, *, remedy: str = "give a readable text file") -> Self:
        """Return the text in a file; `CorpusError` with the ``remedy`` if it cannot be read."""
        try:
            with open_file(file) as opened:
                return cls(str(file), opened.read())
        except OSError as error:
            raise CorpusError(f"cannot read {file}: {error.strerror}; {remedy}") from error

    def decoded(self) -> str:
        """Return the text; `CorpusError` if it is empty or not UTF-8."""
        remedy = "save the file as UTF-8"
        if self.where.endswith(".bin"):
            remedy = (
                "if it holds the token ids of nanoGPT, give the file that "
                f"np.save('ids.npy', np.fromfile({self.where!r}, np.uint16)) makes"
            )
        try:
            text = self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise CorpusError(
                f"{self.where}, line {line}: the byte 0x{error.object[error.start]:02x} is not UTF-8; {remedy}"
            ) from None
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise CorpusError(
                f"{self.where}, line {line} holds a NUL byte, so it is not a text in UTF-8 (perhaps in UTF-16): "
                f"{remedy}"
            )
        if not text.strip():
            raise CorpusError(f"{self.where} is empty: give a file with text")
        return text

    def lines(self) -> list[list[str]]:
        """Return each line's tokens, which stand between spaces, and `EOS`, as Mikolov's PTB scripts and AWD-LSTM do.

        A blank line is one `EOS`, as the 245,569 test tokens of WikiText-2 require, and so is one at the end of a line.
        """
        # splitlines() would also split at form feeds and U+2028, which are spaces inside a line.
        lines = (line.split() for line in self.decoded().removesuffix("\n").split("\n"))
        return [words if words[-1:] == [EOS] else [*words, EOS] for words in lines]


def corpus_of(name: str, texts: Mapping[str, RawText], *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return the corpus of three ``texts``, keyed by `SPLITS`.

    The default ``vocabulary`` consists of the tokens of all three splits, train first, as in AWD-LSTM's ``data.py``. A
    token outside a given one is a `CorpusError` that names the text and the line.
    """
    lines = {split: texts[split].lines() for split in SPLITS}
    if vocabulary is None:
        vocabulary = Vocabulary.of(chain.from_iterable(chain.from_iterable(lines.values())))
    splits = {
        split: np.concatenate(list(_encoded(lines[split], vocabulary, where=texts[split].where))) for split in SPLITS
    }
    # A hash of hashes also changes when text moves from the end of one split to the start of the next.
    digests = "".join(f"{sha256_bytes(texts[split].data)}  {split}\n" for split in SPLITS)
    return Corpus(name=name, vocabulary=vocabulary, splits=splits, sha256=sha256_bytes(digests.encode()))


def load_folder(folder: Path, *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return the corpus in ``folder``: ``train.txt``, ``valid.txt`` and ``test.txt``, UTF-8, tokens between spaces.

    Its name is the folder's absolute path, so that a run finds its corpus from any working directory. `CorpusError` for
    a file that is missing, unreadable, empty, not UTF-8, or does not fit ``vocabulary``.
    """
    files = {split: folder / f"{split}.txt" for split in SPLITS}
    remedy = f"a corpus folder holds the text files {', '.join(file.name for file in files.values())}"
    texts = {split: RawText.read(file, remedy=remedy) for split, file in files.items()}
    return corpus_of(str(folder.resolve()), texts, vocabulary=vocabulary)


def _encoded(lines: list[list[str]], vocabulary: Vocabulary, *, where: str) -> Iterator[npt.NDArray[np.int64]]:
    for number, line in enumerate(lines, 1):
        yield vocabulary.encode(line, f"{where}, line {number}")
