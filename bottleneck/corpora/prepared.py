"""The corpora that are encoded once as files of token ids, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import CorpusError
from . import one_billion, switchboard, text8
from .corpus import Corpus
from .download import ByteCallback
from .downloadable import Downloadable
from .ids import is_whole, read_ids
from .vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class PreparedCorpus(Downloadable):
    """A corpus that is read from id files in the cache."""

    prepare: Callable[..., None]
    """Function that writes the files, given the folder and the keywords ``source``, ``url`` and ``progress``."""

    def is_present(self, cache: Path | None = None) -> bool:
        """Return whether all files exist with their sizes; hashes are checked when a split is read."""
        return is_whole(self.folder(cache))

    def load(self, *, vocabulary: Vocabulary | None = None, cache: Path | None = None) -> Corpus:
        """Return the corpus; `CorpusError` if it is missing, or for another vocabulary."""
        if not self.folder(cache).is_dir():
            raise CorpusError(self.absent)
        return read_ids(self.folder(cache), vocabulary=vocabulary)

    def get(
        self, *, sources: Sequence[Path], urls: Sequence[str], cache: Path | None, progress: ByteCallback | None
    ) -> None:
        """Write the files unless they are complete; `CorpusError` for more than one source or address."""
        if is_whole(self.folder(cache), ids=True):
            return
        if len(sources) + len(urls) > 1:
            raise CorpusError(f"{self.name} takes one source: give one --from PATH or one --url")
        source, url = next(iter(sources), None), next(iter(urls), None)
        self.prepare(self.folder(cache), source=source, url=url, progress=progress)


PREPARED: dict[str, PreparedCorpus] = {
    corpus.name: corpus
    for corpus in (
        PreparedCorpus(
            name=text8.NAME,
            description="letters and spaces of Wikipedia (Mahoney 2011), a token each",
            licence="CC BY-SA 3.0",
            tokens=text8.TOKENS,
            vocabulary_size=len(text8.VOCABULARY),
            prepare=text8.prepare,
        ),
        PreparedCorpus(
            name=one_billion.NAME,
            description="1B Word benchmark (Chelba et al. 2013), lower-cased, from its shards",
            licence="that of the news texts it was made from; for research use",
            tokens=None,
            vocabulary_size=one_billion.VOCABULARY_SIZE,
            prepare=one_billion.prepare,
        ),
        PreparedCorpus(
            name=switchboard.NAME,
            description="telephone conversations of the Switchboard dialog act corpus",
            licence="derived from LDC97S62; for research use",
            tokens=None,
            vocabulary_size=switchboard.VOCABULARY_SIZE,
            prepare=switchboard.prepare,
        ),
    )
}
