"""The built-in corpus: the reference text that ``help()`` shows, which is part of CPython."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Mapping

from ..errors import CorpusError
from .corpus import SPLITS, Corpus, RawText, corpus_of
from .vocabulary import UNK, Vocabulary

NAME = "python-docs"

_TOKEN = re.compile(r"\w+|[^\w\s]")
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+")
_BLOCK = 10  # paragraphs in a block, which stays in one split so that held-out text is connected


def load_python_docs(*, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return the corpus of ``pydoc_data.topics``: lower-cased words and signs, an `EOS` after each sentence.

    Words seen once become `UNK`. Of every ten blocks of ten paragraphs the ninth is for validation and the
    tenth for testing. CPython 3.11.7 gives 119,052 tokens of 2,649 types; other versions differ a little, and
    the SHA-256 with them. `CorpusError` when this Python comes without the text, or when it does not fit
    ``vocabulary``.
    """
    where = f"{NAME} of Python {platform.python_version()}"
    texts = {split: RawText(where=f"{where}, {split}", data=text.encode()) for split, text in _texts(_topics()).items()}
    return corpus_of(NAME, texts, vocabulary=vocabulary)


def _topics() -> Mapping[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise CorpusError(
            f"this Python has no pydoc_data.topics, which {NAME} is made of (some distributions leave it "
            f"out): install CPython's full standard library, or use ptb or a folder of your own"
        ) from error
    return topics


def _texts(topics: Mapping[str, str]) -> dict[str, str]:
    """Return the three splits, one sentence in each line."""
    # Sorted, because the order of the dict may change.
    paragraphs = [
        sentences
        for topic in sorted(topics)
        for part in _PARAGRAPH_END.split(topics[topic])
        if (sentences := _read(part))
    ]
    counts = Counter(token for sentences in paragraphs for tokens in sentences for token in tokens)
    lines: dict[str, list[str]] = {split: [] for split in SPLITS}
    for number, sentences in enumerate(paragraphs):
        split = {8: "valid", 9: "test"}.get(number // _BLOCK % 10, "train")
        lines[split] += [" ".join(token if counts[token] > 1 else UNK for token in tokens) for tokens in sentences]
    return {split: "\n".join(lines[split]) for split in SPLITS}


def _read(paragraph: str) -> list[list[str]]:
    sentences = (_TOKEN.findall(sentence) for sentence in _SENTENCE_END.split(paragraph.lower()))
    return [tokens for tokens in sentences if tokens]
