"""The files of a corpus in a folder, an archive or a file, or at an address; pinned ones are known by their SHA-256."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..core.files import open_file, sha256_bytes
from ..errors import CorpusError
from .archives import is_archive, read_members
from .download import ByteCallback, download

_OVERHEAD = 1 << 20  # bytes an archive may hold beside the corpus: headers, padding, a README
_HTML = re.compile(rb"\s*(<(\?|!--)[^>]*>\s*)*<(!doctype\s+html|html|head)\b", re.IGNORECASE)


class PinnedFile(NamedTuple):
    """One file of a corpus."""

    split: str
    name: str
    """Usual name of the file."""
    size: int
    """Size in bytes."""
    sha256: str
    """SHA-256, hexadecimal."""
    url: str
    """Address from which it is downloaded."""


class FoundFile(NamedTuple):
    """One file that a source holds."""

    where: str
    """The file in words, for error messages."""
    name: str
    """Its path, in an archive that of the member."""
    data: bytes


def read_source(
    source: Path | str,
    *,
    largest: int,
    total: int,
    folder: Callable[[Path], Sequence[Path]],
    progress: ByteCallback | None = None,
) -> Iterator[FoundFile]:
    """Yield the files of a source: a folder, an archive or a single file, or, for a text, what is at an address.

    A member of an archive has at most ``largest`` bytes, all of it at most ``total``. ``folder`` returns which files of
    a folder to read. `CorpusError` for a source that is missing, unreadable or larger, and as for `read_members`.
    """
    try:
        if isinstance(source, str):
            data = download(source, limit=total, progress=progress)
        elif source.is_dir():
            for path in folder(source):
                yield from read_source(path, largest=largest, total=total, folder=folder)
            return
        elif not source.is_file():
            raise CorpusError(f"{source} is not a file or a folder: give one that holds the corpus")
        elif (size := source.stat().st_size) > total:
            raise CorpusError(
                f"{source} has {size:,} bytes, and all of this corpus has at most {total:,}: it is something else"
            )
        else:
            with open_file(source) as file:
                data = file.read()
    except OSError as error:
        where = error.filename or source
        raise CorpusError(f"cannot read {where}: {error.strerror}; make it readable, or give a copy") from error
    if not is_archive(data):
        yield FoundFile(str(source), str(source), data)
        return
    for name, content in read_members(data, where=str(source), largest=largest, total=total):
        yield FoundFile(f"{source}: the member {name!r}", name, content)


def archives_in(folder: Path, *names: str) -> list[Path]:
    """Return the archives in a folder that have one of these names in theirs, or else the only archive."""
    archives = []
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        with open_file(path) as file:
            if is_archive(file.read(512)):
                archives.append(path)
    named = [path for path in archives if any(name in path.name.lower() for name in names)]
    return named or (archives if len(archives) == 1 else [])


def find_pinned(
    files: Sequence[PinnedFile], source: Path | str, *, corpus: str, progress: ByteCallback | None = None
) -> dict[PinnedFile, bytes]:
    """Return the pinned files of a corpus that a source holds.

    A file is recognized by its SHA-256, whatever its name. In a folder only the files directly in it count, and of
    these those named or sized like a pinned one, and where some are missing its archive (`archives_in`). `CorpusError`
    for a source that holds something else; the text says what that seems to be: an HTML page, a changed file, an
    unexpected member.
    """

    def in_folder(folder: Path) -> list[Path]:
        names = {name for file in files for name in (file.name, f"{file.split}.txt")}
        sizes = {file.size for file in files}
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        chosen = [path for path in paths if path.name in names or path.stat().st_size in sizes]
        return chosen if len(chosen) >= len(files) else [*chosen, *archives_in(folder, corpus)]

    largest, total = max(file.size for file in files), sum(file.size for file in files) + _OVERHEAD
    found = read_source(source, largest=largest, total=total, folder=in_folder, progress=progress)
    return {_recognized(files, each, corpus): each.data for each in found}


def _recognized(files: Sequence[PinnedFile], found: FoundFile, corpus: str) -> PinnedFile:
    where, data, digest = found.where, found.data, sha256_bytes(found.data)
    for file in files:
        if file.sha256 == digest:
            return file
    if _HTML.match(data[:4096]):
        raise CorpusError(f"{where} is an HTML page, not data: take the raw file's own address, or download it by hand")
    words = re.split(r"[^a-z0-9]+", found.name.lower().rsplit("/", 1)[-1])
    for file in files:
        if file.split in words:  # as in wikitext-2.test.txt
            raise CorpusError(
                f"{where} is not the {file.name} of {corpus}: SHA-256 {digest[:12]}… with {len(data):,} bytes, "
                f"expected {file.sha256[:12]}… with {file.size:,}; get an unchanged copy"
            )
    names = ", ".join(file.name for file in files)
    raise CorpusError(f"{where} is not expected: {corpus} is made of {names} and nothing else; leave it out")
