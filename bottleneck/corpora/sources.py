"""Search for pinned files, by their SHA-256, in a folder, an archive or a text file, or at an address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..core.files import sha256_bytes
from ..errors import CorpusError
from .archives import is_archive, read_members
from .download import ByteCallback, download

_OVERHEAD = 1 << 20  # bytes an archive may hold beside the corpus: headers, padding, a README
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
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


@dataclass(frozen=True)
class Pins:
    """The files of a corpus."""

    corpus: str
    files: tuple[PinnedFile, ...]

    @property
    def size(self) -> int:
        """Size of all files together, in bytes."""
        return sum(file.size for file in self.files)

    @property
    def limit(self) -> int:
        """Largest size of a source, compressed or not, in bytes."""
        return self.size + _OVERHEAD


def find(pins: Pins, source: Path | str, *, progress: ByteCallback | None = None) -> dict[PinnedFile, bytes]:
    """Return the pinned files in a folder, an archive or a text file, or, for a text, at an address.

    A file is recognized by its SHA-256, whatever its name. In a folder only the files directly in it count, and of
    these those named or sized like a pinned one.

    Raises:
        CorpusError: ``source`` is absent, unreadable or holds something else; the text says what that seems to be: an
            HTML page, a Git LFS pointer, a changed file, an unexpected member. Also as for `download`.
    """
    if isinstance(source, str):
        return _find(pins, download(source, limit=pins.limit, progress=progress), where=source)
    try:
        if source.is_dir():
            wanted = [path for path in sorted(source.iterdir()) if _looks_wanted(pins, path)]
            return {file: data for path in wanted for file, data in find(pins, path).items()}
        if not source.is_file():
            raise CorpusError(f"there is no file or folder {source}: give one that holds {pins.corpus}")
        size = source.stat().st_size
        if size > pins.limit:
            raise CorpusError(
                f"{source} has {size:,} bytes, more than all of {pins.corpus} ({pins.size:,}): it is something else"
            )
        return _find(pins, source.read_bytes(), where=str(source))
    except OSError as error:
        raise CorpusError(f"cannot read {source}: {error.strerror}; make it readable, or give a copy") from error


def _find(pins: Pins, data: bytes, *, where: str) -> dict[PinnedFile, bytes]:
    if not is_archive(data):
        return {_recognized(pins, data, where=where, name=where): data}
    largest = max(file.size for file in pins.files)
    members = read_members(data, where=where, largest=largest, total=pins.limit)
    return {
        _recognized(pins, content, where=f"{where}: the member {name!r}", name=name): content
        for name, content in members
    }


def _looks_wanted(pins: Pins, path: Path) -> bool:
    return path.is_file() and any(
        path.name in (file.name, f"{file.split}.txt") or path.stat().st_size == file.size for file in pins.files
    )


def _recognized(pins: Pins, data: bytes, *, where: str, name: str) -> PinnedFile:
    digest = sha256_bytes(data)
    for file in pins.files:
        if file.sha256 == digest:
            return file
    if _HTML.match(data[:4096]):
        raise CorpusError(f"{where} is an HTML page, not data: take the raw file's own address, or download it by hand")
    if data.startswith(_LFS_POINTER):
        raise CorpusError(f"{where} is a Git LFS pointer, not data: run `git lfs pull` where it came from")
    words = re.split(r"[^a-z0-9]+", name.lower().rsplit("/", 1)[-1])
    for file in pins.files:
        if file.split in words:  # as in wikitext-2.test.txt
            raise CorpusError(
                f"{where} is not the {file.name} of {pins.corpus}: SHA-256 {digest[:12]}… with {len(data):,} bytes, "
                f"expected {file.sha256[:12]}… with {file.size:,}; get an unchanged copy"
            )
    names = ", ".join(file.name for file in pins.files)
    raise CorpusError(f"{where} is not expected: {pins.corpus} is made of {names} and nothing else; leave it out")
