"""Text as token ids: the built-in corpus, the downloadable ones, and any folder of three text files."""

from .cache import get, path
from .corpus import SPLITS, Corpus
from .pinned import PINNED, PinnedCorpus, PinnedFile
from .registry import CorpusInfo, catalogue, load
from .vocabulary import EOS, UNK, Vocabulary

__all__ = [
    "EOS",
    "PINNED",
    "SPLITS",
    "UNK",
    "Corpus",
    "CorpusInfo",
    "PinnedCorpus",
    "PinnedFile",
    "Vocabulary",
    "catalogue",
    "get",
    "load",
    "path",
]
