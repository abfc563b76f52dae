"""Text as token ids: the built-in corpus, the downloadable ones, and any folder of three text files."""

from .corpus import SPLITS, Corpus
from .pinned import PINNED, PinnedCorpus
from .prepared import PREPARED
from .registry import CorpusInfo, catalogue, get, load, path
from .sources import PinnedFile
from .vocabulary import EOS, UNK, Vocabulary

__all__ = [
    "EOS",
    "PINNED",
    "PREPARED",
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
