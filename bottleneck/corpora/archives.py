"""Zip and tar archives as untrusted input: read in memory, member by member, never unpacked to disk."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Final, cast

from ..core.files import DAMAGE
from ..errors import CorpusError

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")  # a first member, or the end record of an empty archive
_PACKINGS: Final[dict[bytes, Callable[[io.BytesIO], io.BufferedIOBase]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_USTAR_AT: Final = 257  # position of the magic word in a tar header (POSIX 1003.1)
_LONGEST_EXTENSION: Final = 1 << 13  # bytes of names and dates; tarfile's time grows with their square
_EXTENSIONS: Final = (  # headers that extend the next member's, which tarfile reads into memory
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_JUNK: Final = re.compile(r"(.*/)?(__MACOSX/.*|\.DS_Store|(README|LICENSE)(\.txt|\.md)?)", re.IGNORECASE | re.DOTALL)

Member = tuple[str, int, Callable[[], IO[bytes] | None]]
"""Name and size of a plain file in an archive of either kind, and a function that opens it."""


def is_archive(data: bytes) -> bool:
    """Return whether ``data`` starts as a zip, a tar or a packed file does."""
    return data.startswith((*_ZIP, *_PACKINGS)) or data[_USTAR_AT:].startswith(b"ustar")


def read_members(data: bytes, *, where: str, largest: int, total: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each file in an archive, leaving out folders and well-known junk.

    Junk is ``__MACOSX/``, ``.DS_Store``, ``README`` and ``LICENSE``.

    Args:
        data: the archive.
        where: its origin, for error messages.
        largest: largest size of a member, in bytes.
        total: largest size of a compressed tar archive after decompression, in bytes.

    Raises:
        CorpusError: for a size above these limits, a link or device, and an archive that is encrypted or damaged.
    """
    try:
        members = _zip_members(data) if data.startswith(_ZIP) else _tar_members(_unpacked(data, where, total))
        for name, size, open_member in members:
            if _JUNK.fullmatch(name):
                continue
            if size > largest:
                raise CorpusError(
                    f"{where}: the member {name!r} has {size:,} bytes, and no file of this corpus has more than "
                    f"{largest:,}; it was not read, give the right archive"
                )
            with cast(IO[bytes], open_member()) as file:
                yield name, file.read(largest + 1)
    except DAMAGE as error:  # RuntimeError for what is encrypted, or of a method that zipfile does not know
        raise CorpusError(
            f"{where} is damaged, or not an archive that Python can read ({error}): download it again, or unpack it"
        ) from error


def _zip_members(data: bytes) -> Iterator[Member]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if not info.filename.endswith("/"):  # a folder; a name may be empty
                yield info.filename, info.file_size, partial(archive.open, info)


class _Header(tarfile.TarInfo):
    """A header that is checked before `tarfile` follows it, possibly in an endless loop (CVE-2025-8194)."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """Return the header in a block."""
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0:
            raise tarfile.ReadError(f"the member {header.name!r} has a negative size")
        if header.type in _EXTENSIONS and header.size > _LONGEST_EXTENSION:
            raise tarfile.ReadError(f"the member {header.name!r} has a header of {header.size:,} bytes")
        return header


def _tar_members(data: bytes) -> Iterator[Member]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", tarinfo=_Header) as archive:
        for info in archive:
            if info.size < 0:  # from an extended header
                raise tarfile.ReadError(f"the member {info.name!r} has a negative size")
            if not info.isreg() and not info.isdir():
                raise tarfile.ReadError(f"the member {info.name!r} is a link or a device")
            if info.isreg():
                yield info.name, info.size, partial(archive.extractfile, info)


def _unpacked(data: bytes, where: str, total: int) -> bytes:
    for magic, packing in _PACKINGS.items():
        if data.startswith(magic):
            with packing(io.BytesIO(data)) as file:
                data = file.read(total + 1)
            break
    if len(data) > total:
        raise CorpusError(f"{where} unpacks to more than {total:,} bytes: it is not this corpus; give the right file")
    return data
