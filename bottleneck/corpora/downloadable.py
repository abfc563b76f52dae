"""The corpora that are kept in the cache: texts that are downloaded as they are, and files of token ids made once."""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..core.files import cache_folder, make_folder, sha256_bytes, sha256_file, write_bytes
from ..core.progress import Progress
from ..errors import CorpusError
from . import one_billion, switchboard, text8
from .corpus import Corpus, RawText, corpus_of
from .ids import is_whole, read_ids
from .sources import PinnedFile, download, downloaded, find_pinned
from .vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Downloadable(ABC):
    """A corpus whose files are kept in a folder of the cache.

    ``tokens`` (for each split, `EOS` counted) are None where they are not known before the files are made.
    """

    name: str
    description: str
    licence: str
    tokens: Mapping[str, int] | None = None
    vocabulary_size: int

    @property
    def folder(self) -> Path:
        """Its folder, there or not, in ``$SOFTMAX_BOTTLENECK_CACHE`` or the user's cache."""
        return cache_folder() / "corpora" / self.name

    @property
    def absent(self) -> str:
        """The sentence for a corpus that is not there."""
        return (
            f"{self.name} is not on this machine yet: run `bottleneck data get {self.name}`, with --from PATH if you "
            "have it as a file"
        )

    @abstractmethod
    def is_present(self) -> bool:
        """Return whether all its files are there with their sizes; `load` checks their bytes."""

    @abstractmethod
    def load(self, *, vocabulary: Vocabulary | None = None) -> Corpus:
        """Return it; `CorpusError` when it is not there, damaged, or does not fit ``vocabulary``."""

    @abstractmethod
    def get(self, *, sources: Sequence[Path], urls: Sequence[str], progress: Progress) -> None:
        """Bring it into the cache where it is not there intact; see `registry.get`."""


@dataclass(frozen=True, kw_only=True)
class PinnedCorpus(Downloadable):
    """A corpus of three texts that are downloaded as they are."""

    files: tuple[PinnedFile, ...]

    def is_present(self) -> bool:
        """Return whether all three texts exist with their sizes."""
        places = ((self._place(file), file.size) for file in self.files)
        return all(place.is_file() and place.stat().st_size == size for place, size in places)

    def load(self, *, vocabulary: Vocabulary | None = None) -> Corpus:
        """Return the corpus; see `Downloadable.load`."""
        texts, remedy = {}, f"run `bottleneck data get {self.name}` to get it again"
        for file in self.files:
            place = self._place(file)
            if not place.exists():
                raise CorpusError(self.absent)
            texts[file.split] = RawText.read(place, remedy=remedy)
            if sha256_bytes(texts[file.split].data) != file.sha256:
                raise CorpusError(f"{place} is damaged: its SHA-256 is not the pinned one; {remedy}")
        return corpus_of(self.name, texts, vocabulary=vocabulary)

    def get(self, *, sources: Sequence[Path], urls: Sequence[str], progress: Progress) -> None:
        """Bring missing or damaged texts into the cache, by default from their pinned addresses."""
        missing = self._missing()
        if not missing:
            return
        make_folder(self.folder)
        for file in () if sources or urls else missing:
            download(file.url, self._place(file), progress=progress, sha256=file.sha256, size=file.size)
        with downloaded(urls, progress) as places:
            for source in (*sources, *places):
                for file, data in find_pinned(self.files, source, corpus=self.name).items():
                    write_bytes(self._place(file), data)
        if missing := self._missing():
            raise CorpusError(
                f"{self.name} still lacks {', '.join(f'{file.name} ({file.size:,} bytes)' for file in missing)}: "
                f"the other files are kept; give the rest with another --from PATH"
            )

    def _place(self, file: PinnedFile) -> Path:
        return self.folder / f"{file.split}.txt"

    def _missing(self) -> list[PinnedFile]:
        """Return the files that are missing or changed."""
        places = ((file, self._place(file)) for file in self.files)
        return [file for file, place in places if not place.is_file() or sha256_file(place) != file.sha256]


@dataclass(frozen=True, kw_only=True)
class PreparedCorpus(Downloadable):
    """A corpus that is read from files of token ids."""

    prepare: Callable[..., None]
    """Function that writes the files, given the folder and the keywords ``source``, a path or ``None``, and
    ``progress``."""
    url: str | None = None
    """Address of the source, where it has one."""

    def is_present(self) -> bool:
        """Return whether all files exist with their sizes; hashes are checked when a split is read."""
        return is_whole(self.folder)

    def load(self, *, vocabulary: Vocabulary | None = None) -> Corpus:
        """Return the corpus; see `Downloadable.load`."""
        if not self.folder.is_dir():
            raise CorpusError(self.absent)
        return read_ids(self.folder, vocabulary=vocabulary)

    def get(self, *, sources: Sequence[Path], urls: Sequence[str], progress: Progress) -> None:
        """Write the files unless they are complete; `CorpusError` for more than one source or address."""
        if is_whole(self.folder, ids=True):
            return
        if len(sources) + len(urls) > 1:
            raise CorpusError(f"{self.name} takes one source: give one --from PATH or one --url")
        if self.url and not sources:
            urls = urls or [self.url]
        with downloaded(urls, progress) as places:
            self.prepare(self.folder, source=next(iter([*sources, *places]), None), progress=progress)


_TABLES = tomllib.loads(files(__package__).joinpath("known.toml").read_text(encoding="utf-8"))


def _pinned(name: str, *, folder: str, files: Mapping[str, Mapping[str, Any]], **facts: Any) -> PinnedCorpus:
    pins = (PinnedFile(name=file, url=f"{folder}/{file}", **pin) for file, pin in files.items())
    return PinnedCorpus(name=name, files=tuple(pins), **facts)


PINNED = {name: _pinned(name, **facts) for name, facts in _TABLES.items() if "files" in facts}
PREPARED = {
    module.NAME: PreparedCorpus(name=module.NAME, prepare=module.prepare, **_TABLES[module.NAME])
    for module in (text8, one_billion, switchboard)
}
