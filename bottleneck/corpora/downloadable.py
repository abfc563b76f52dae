"""The base class of corpora that are downloaded into the cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.files import cache_folder
from ..errors import CorpusError
from .corpus import Corpus
from .download import ByteCallback
from .vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Downloadable(ABC):
    """A corpus whose files are kept in a folder of the cache.

    ``tokens`` (for each split, `EOS` counted) are None where they are not known before the files are made.
    """

    name: str
    description: str
    licence: str
    tokens: Mapping[str, int] | None
    vocabulary_size: int

    def folder(self, cache: Path | None = None) -> Path:
        """Return its folder, there or not, in ``cache``, ``$SOFTMAX_BOTTLENECK_CACHE``, or the user's cache."""
        return (cache or cache_folder()) / "corpora" / self.name

    def path(self, cache: Path | None = None) -> Path:
        """Return its folder; `CorpusError` when its files are not there."""
        if not self.is_present(cache):
            raise CorpusError(self.absent)
        return self.folder(cache)

    @property
    def absent(self) -> str:
        """The sentence for a corpus that is not there."""
        return (
            f"{self.name} is not on this machine yet: run `bottleneck data get {self.name}`, with --from PATH if you "
            "have it as a file"
        )

    @abstractmethod
    def is_present(self, cache: Path | None = None) -> bool:
        """Return whether all its files are there with their sizes; `load` checks their bytes."""

    @abstractmethod
    def load(self, *, vocabulary: Vocabulary | None = None, cache: Path | None = None) -> Corpus:
        """Return it; `CorpusError` when it is not there, damaged, or does not fit ``vocabulary``."""

    @abstractmethod
    def get(
        self, *, sources: Sequence[Path], urls: Sequence[str], cache: Path | None, progress: ByteCallback | None
    ) -> None:
        """Bring it into the cache where it is not there intact; see `registry.get`."""
