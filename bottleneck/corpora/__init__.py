"""Text as token ids: the built-in corpus, the downloadable ones, and any folder of three text files."""

from .corpus import SPLITS, Corpus, RawText, corpus_of
from .downloadable import PINNED, PREPARED, Downloadable, PinnedCorpus
from .own import read_data
from .registry import CorpusInfo, catalogue, get, load, path, remove, size_of
from .sources import PinnedFile
from .vocabulary import EOS, UNK, Vocabulary

__all__ = [
    "EOS", "PINNED", "PREPARED", "SPLITS", "UNK", "Corpus", "CorpusInfo", "Downloadable", "PinnedCorpus",
    "PinnedFile", "RawText", "Vocabulary", "catalogue", "corpus_of", "get", "load", "path", "read_data", "remove",
    "size_of",
]  # fmt: skip
