"""The files of a corpus in a folder, an archive or a file, or at an address; pinned ones are known by their SHA-256."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple, cast

from ..core.files import DAMAGE, check_size, open_file, sha256_bytes
from ..core.progress import Bar, Progress
from ..errors import BottleneckError, CorpusError, first_line


class PinnedFile(NamedTuple):
    """One file of a corpus."""

    split: str
    name: str
    """Usual name of the file."""
    size: int
    """Size in bytes."""
    sha256: str
    """SHA-256, hexadecimal."""
    url: str = ""
    """Address from which it is downloaded, if it is not part of an archive."""


class FoundFile(NamedTuple):
    """One file that a source holds."""

    name: str
    """Its path, in an archive that of the member."""
    size: int
    """Its size in bytes, in an archive the declared one."""
    read: Callable[[], bytes]


class _Received:
    """What pooch tells of a download, shown by a bar."""

    total = 0

    def __init__(self, bar: Bar) -> None:
        self.update = bar.advance

    def reset(self) -> None:
        """Do not count the bytes again: pooch repeats their sum at the end."""
        self.update = Bar().advance

    def close(self) -> None:
        """Leave the bar to the block that shows it."""


def download(url: str, place: Path, *, progress: Progress, sha256: str | None = None, size: int = 0) -> Path:
    """Write what is at an address to a file by pooch; return its path.

    Raises:
        CorpusError: for an address that does not give it, a connection that breaks, or another SHA-256.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    try:
        with progress.bar(f"downloading {place.name}", size, "bytes") as bar:
            web = pooch.HTTPDownloader(progressbar=_Received(bar), chunk_size=1 << 16)
            pooch.retrieve(url, sha256 and f"sha256:{sha256}", fname=place.name, path=place.parent, downloader=web)
    except (OSError, ValueError) as error:
        reason = re.sub(r"<[^<>]*>(: )?", "", first_line(error))
        raise CorpusError(
            f"{url} could not be downloaded ({reason}): check the address and the network, or get the file in another "
            "way and give it with --from PATH"
        ) from error
    progress.line(f"{place.name}: {place.stat().st_size:,} bytes")
    return place


@contextmanager
def downloaded(urls: Sequence[str], progress: Progress) -> Iterator[list[Path]]:
    """Yield the files at some addresses, which are kept while the block runs."""
    with TemporaryDirectory(prefix="bottleneck-") as folder:
        places = [
            (url, Path(folder) / str(number) / Path(url.partition("?")[0]).name) for number, url in enumerate(urls)
        ]
        yield [download(url, place, progress=progress) for url, place in places]


def files_in(source: Path) -> Iterator[FoundFile]:
    """Yield the files in a folder or an archive, those of archives in a folder too; another file is yielded itself.

    Raises:
        CorpusError: for a source that is missing, cannot be read, or is an archive that is damaged or encrypted.
    """
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.is_file():
                yield from files_in(path)
        return
    with _reading(source), open_file(source) as file:
        stored = source.stat().st_size
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                for each in archive.infolist():
                    if not each.is_dir() and not each.filename.startswith("__MACOSX/"):
                        opened = partial(archive.open, each)
                        yield _found(each.filename, each.file_size, opened, each.compress_size, source)
        elif tarfile.is_tarfile(source):
            with tarfile.open(source) as packed:
                for info in packed:
                    if info.isfile():
                        yield _found(info.name, info.size, partial(packed.extractfile, info), stored, source)
        else:
            yield _found(str(source), stored, partial(open_file, source), stored, source)


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except BottleneckError:
        raise
    except DAMAGE as error:  # RuntimeError for what is encrypted, or of a method that zipfile does not know
        reason = getattr(error, "strerror", None) or first_line(error)
        raise CorpusError(f"cannot read {source}: {reason}; give a whole copy, or unpack it") from error


def _found(name: str, size: int, opened: Callable[[], IO[bytes] | None], stored: int, source: Path) -> FoundFile:
    def read() -> bytes:
        check_size((size,), 1, stored=stored, what=f"{name} of {source}", whole=True)
        with _reading(source), cast(IO[bytes], opened()) as file:
            return file.read()

    return FoundFile(name, size, read)


def find_pinned(files: Sequence[PinnedFile], source: Path, *, corpus: str) -> dict[PinnedFile, bytes]:
    """Return the pinned files of a corpus that a source holds, by size and SHA-256, whatever their names.

    Raises:
        CorpusError: for a source that holds none of them, and as `files_in`.
    """
    pinned = {(file.size, file.sha256): file for file in files}
    sizes = {file.size for file in files}
    found = ((each.size, each.read()) for each in files_in(source) if each.size in sizes)
    by_hash = {(size, sha256_bytes(data)): data for size, data in found}
    if not pinned.keys() & by_hash.keys():
        names = ", ".join(f"{file.name} with {file.size:,} bytes" for file in files)
        raise CorpusError(f"{source} does not hold {corpus}, by size and SHA-256 ({names}): give an unchanged copy")
    return {pinned[key]: data for key, data in by_hash.items() if key in pinned}
