"""Switchboard: telephone conversations as lines of text, an utterance a line, in the 10,000 most frequent words.

A line is the speaker, ``<a>`` or ``<b>``, the words, and `EOS`; a conversation ends with a blank line, a lone `EOS`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from ..core.files import sha256_bytes
from ..core.progress import Progress
from ..errors import CorpusError
from .corpus import SPLITS, RawText
from .ids import Ids, write_ids
from .sources import files_in
from .vocabulary import EOS, UNK, Vocabulary

NAME = "switchboard"
VOCABULARY_SIZE = 10_000
"""As in Zhao et al. 2017; `EOS`, `UNK` and the two speakers are among them."""
LONGEST = 40
"""Tokens of a line; the speaker and `EOS` count, as the two marks of an utterance do in Zhao et al.'s code."""
SPEAKERS = {"A": "<a>", "B": "<b>"}
FOLDERS = {"train": "train", "val": "valid", "test": "test"}
"""Folder of the archive → split."""

_WORD = re.compile(r"\w+|[^\w\s]+")  # NLTK's WordPunctTokenizer, which Zhao et al. apply to lower-cased text

Line = list[str]
"""The speaker's token and the words of an utterance."""


def prepare(folder: Path, *, source: Path | None, progress: Progress) -> None:
    """Turn the conversations of an archive or a folder into ids in ``folder``.

    The source holds ``train``, ``val`` and ``test`` with one text file a conversation and one utterance a line,
    ``speaker|text|act``. `CorpusError` for a source that is missing, damaged, or lacks a split, and for a conversation
    that is empty, has a single speaker, or has a line of another form.
    """
    if source is None:
        raise CorpusError(
            f"{NAME} is not downloaded: its text derives from LDC97S62; give an archive of the dialog act corpus with "
            f"`bottleneck data get {NAME} --from swda.zip`"
        )
    found = ((each, Path(each.name).parent.name) for each in files_in(source) if each.name.endswith(".txt"))
    files = sorted((f"{each.name} of {source}", FOLDERS[name], each.read()) for each, name in found if name in FOLDERS)
    if missing := [name for name, split in FOLDERS.items() if split not in {split for _, split, _ in files}]:
        raise CorpusError(
            f"{source} has no conversations in a folder {missing[0]!r}: {NAME} is made of the folders "
            f"{', '.join(FOLDERS)} with a text file a conversation"
        )
    talks = {name: [_conversation(where, data) for where, split, data in files if split == name] for name in SPLITS}
    counts = Counter(word for talk in talks["train"] for line in talk for word in line[1:])
    vocabulary = Vocabulary.most_frequent(counts, VOCABULARY_SIZE, marks=(EOS, UNK, *SPEAKERS.values()))
    digests = "".join(f"{sha256_bytes(data)}  {split}\n" for _, split, data in files)
    encoded = {split: _encoded(talks[split], vocabulary) for split in SPLITS}
    write_ids(folder, vocabulary, encoded, sha256=sha256_bytes(digests.encode()))


def _conversation(where: str, data: bytes) -> list[Line]:
    """Return the lines of a conversation, at most `LONGEST` tokens each without their `EOS`."""
    rows = RawText(where, data).decoded().splitlines()
    lines = [_line(row, f"{where}, line {number}") for number, row in enumerate(rows, 1)]
    if len({line[0] for line in lines}) < 2:
        raise CorpusError(
            f"{where} has a single speaker, {rows[0][0]}: a conversation takes both, A and B; leave the file out"
        )
    return lines


def _line(row: str, where: str) -> Line:
    parts = row.split("|")
    words = _WORD.findall(parts[1].lower()) if len(parts) == 3 and parts[0] in SPEAKERS else []
    if not words:
        raise CorpusError(f"{where} reads {row[:40]!r}, not speaker|text|act with the speaker A or B: correct it")
    return [SPEAKERS[parts[0]], *words[: LONGEST - 2]]


def _encoded(talks: list[list[Line]], vocabulary: Vocabulary) -> Iterator[Ids]:
    """Yield the ids of each conversation; a word outside the vocabulary is `UNK`."""
    for talk in talks:
        yield vocabulary.encode_known([*chain.from_iterable([*line, EOS] for line in talk), EOS])
