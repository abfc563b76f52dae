"""The 1B Word benchmark (Chelba et al. 2013), lower-cased, with the 100,000 most frequent words."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..core.progress import Progress
from ..errors import CorpusError
from .ids import Ids, write_ids
from .vocabulary import EOS, UNK, Vocabulary

NAME = "one-billion"
VOCABULARY_SIZE = 100_000
"""Number of tokens, including `EOS` and `UNK` (Yang et al. 2018, §3.1: "the top 100K tokens")."""

_TRAIN = "training-monolingual.tokenized.shuffled/news.en-{:05d}-of-00100"
_HELD_OUT = "heldout-monolingual.tokenized.shuffled/news.en.heldout-{:05d}-of-00050"
SHARDS = {
    "train": [_TRAIN.format(number) for number in range(1, 100)],
    "valid": [_HELD_OUT.format(number) for number in (0, 10)],
    "test": [_HELD_OUT.format(number) for number in (20, 30, 40)],
}
"""All training shards, two held-out ones for validation and three for testing (Yang et al. 2018, appendix B.2, which
counts 100 training shards; the release has 99)."""

BYTES_AT_ONCE = 1 << 20
"""Approximate number of bytes of a shard in memory at a time."""


def prepare(folder: Path, *, source: Path | None, progress: Progress) -> None:
    """Encode the shards of the unpacked benchmark in ``source`` as ids in ``folder``, some lines at a time.

    `CorpusError` for a missing source, or a shard that is missing or unreadable.
    """
    if source is None:
        raise CorpusError(
            f"{NAME} is not downloaded: unpack 1-billion-word-language-modeling-benchmark-r13output.tar.gz and give "
            f"its folder with `bottleneck data get {NAME} --from FOLDER`"
        )
    shards = {split: [source / name for name in names] for split, names in SHARDS.items()}
    if missing := [path for paths in shards.values() for path in paths if not path.is_file()]:
        raise CorpusError(f"{missing[0]} is missing: {NAME} is made of all shards of the unpacked benchmark")
    try:
        vocabulary, sha256 = _count(shards, progress)
        splits = {split: _encoded(paths, vocabulary) for split, paths in shards.items()}
        write_ids(folder, vocabulary, splits, sha256=sha256)
    except OSError as error:
        raise CorpusError(f"cannot read {error.filename}: {error.strerror}; make it readable") from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"a shard in {source} is not UTF-8 ({error.reason}): unpack the benchmark again") from error


def _count(shards: dict[str, list[Path]], progress: Progress) -> tuple[Vocabulary, str]:
    """Return the most frequent words of the training shards, ties in alphabetical order, and a hash of all shards."""
    counts, digests = Counter[str](), hashlib.sha256()
    with progress.bar(f"counting {NAME}", sum(map(len, shards.values())), "shards") as bar:
        for split, paths in shards.items():
            for path in paths:
                digest = hashlib.sha256()
                for lines in _lines(path):
                    digest.update(b"".join(lines))
                    if split == "train":
                        for line in lines:
                            counts.update(_words(line))
                digests.update(f"{digest.hexdigest()}  {path.name}\n".encode())
                bar.advance(1)
    del counts[EOS], counts[UNK]
    return Vocabulary.most_frequent(counts, VOCABULARY_SIZE, marks=(EOS, UNK)), digests.hexdigest()


def _encoded(paths: Iterable[Path], vocabulary: Vocabulary) -> Iterator[Ids]:
    """Yield the ids of consecutive lines; a word outside the vocabulary is `UNK`."""
    for path in paths:
        for lines in _lines(path):
            yield vocabulary.encode_known(word for line in lines for word in _words(line))


def _words(line: bytes) -> list[str]:
    return [*line.decode("utf-8").lower().split(), EOS]


def _lines(path: Path) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        while lines := file.readlines(BYTES_AT_ONCE):
            yield lines
