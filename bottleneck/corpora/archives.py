"""Zip and tar archives as untrusted input: read in memory, member by member, never unpacked to disk."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ..errors import CorpusError

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")  # a first member, or the end record of an empty archive
_PACKINGS: Final[dict[bytes, Callable[[io.BytesIO], io.BufferedIOBase]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_USTAR_AT: Final = 257  # where POSIX 1003.1 puts the magic word of a tar header

_EXTENSIONS: Final = (  # headers that say more about the next member, which tarfile reads whole
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_LONGEST_EXTENSION: Final = 1 << 13  # bytes of names and dates; tarfile's time grows with their square

_DAMAGE: Final = (  # what Python's readers raise for broken archives, each its own
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    OverflowError,  # sizes that no file has
    RecursionError,  # headers that extend each other
)
_JUNK: Final = re.compile(r"(.*/)?(__MACOSX/.*|\.DS_Store|(README|LICENSE)(\.txt|\.md)?)", re.IGNORECASE | re.DOTALL)


def is_archive(data: bytes) -> bool:
    """Return whether ``data`` starts as a zip, a tar or a packed file does."""
    return data.startswith((*_ZIP, *_PACKINGS)) or _is_tar(data)


def read_members(data: bytes, *, where: str, largest: int, total: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each file in an archive, leaving out folders and well-known junk.

    Junk is ``__MACOSX/``, ``.DS_Store``, ``README`` and ``LICENSE``. A member bigger than ``largest`` bytes
    is refused unread, and so is a packed tar that unpacks to more than ``total`` bytes. `CorpusError`, naming
    ``where`` and the member, for those, for a name that is absolute or has a ``..``, for links and devices,
    and for an archive that is encrypted or damaged.
    """
    with _explain_damage(where):
        if data.startswith(_ZIP):
            yield from _read_zip(data, where, largest)
        else:
            yield from _read_tar(_unpacked(data, where, total), where, largest)


def _read_zip(data: bytes, where: str, largest: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)  # 0 when the archive was not made on a Unix system
            regular = kind in (0, stat.S_IFREG, stat.S_IFDIR)
            _check(where, info.filename, regular=regular)
            if info.filename.endswith("/") or _JUNK.fullmatch(info.filename):
                continue
            if info.flag_bits & 0x1:
                raise CorpusError(f"{where}: the member {info.filename!r} is encrypted; unpack it and give the files")
            _check_size(where, info.filename, info.file_size, largest)
            with archive.open(info) as file:
                yield info.filename, file.read(largest + 1)


class _Header(tarfile.TarInfo):
    """A header that is refused before `tarfile` goes where it points, which may be back to itself (CVE-2025-8194)."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """Return the header in a block."""
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0:
            raise tarfile.ReadError(f"the member {header.name!r} has a negative size")
        if header.type in _EXTENSIONS and header.size > _LONGEST_EXTENSION:
            raise tarfile.ReadError(f"the member {header.name!r} has a header of {header.size:,} bytes")
        return header


def _read_tar(data: bytes, where: str, largest: int) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", tarinfo=_Header) as archive:
        for info in archive:
            if info.size < 0:  # as an extended header has it
                raise tarfile.ReadError(f"the member {info.name!r} has a negative size")
            _check(where, info.name, regular=(info.isreg() and not info.issparse()) or info.isdir())
            if info.isdir() or _JUNK.fullmatch(info.name):
                continue
            _check_size(where, info.name, info.size, largest)
            file = archive.extractfile(info)
            assert file is not None  # a regular member has bytes
            yield info.name, file.read(largest + 1)


def _unpacked(data: bytes, where: str, total: int) -> bytes:
    for magic, packing in _PACKINGS.items():
        if data.startswith(magic):
            with packing(io.BytesIO(data)) as file:
                data = file.read(total + 1)
            break
    if len(data) > total:
        raise CorpusError(f"{where} unpacks to more than {total:,} bytes: it is something else than this corpus")
    return data


def _is_tar(data: bytes) -> bool:
    return data[_USTAR_AT:].startswith(b"ustar")


def _check(where: str, name: str, *, regular: bool) -> None:
    # Both slashes and a drive letter, so that an archive made for Windows is judged the same everywhere.
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        raise CorpusError(f"{where}: the member {name!r} has an absolute path; do not trust this archive")
    if ".." in re.split(r"[/\\]", name):
        raise CorpusError(f"{where}: the member {name!r} points outside with '..'; do not trust this archive")
    if not regular:
        raise CorpusError(f"{where}: the member {name!r} is a link or a device, or sparse; only plain files are taken")


def _check_size(where: str, name: str, size: int, largest: int) -> None:
    if size > largest:
        raise CorpusError(
            f"{where}: the member {name!r} has {size:,} bytes, and no file of this corpus has more than "
            f"{largest:,}; it was not read, give the right archive"
        )


@contextmanager
def _explain_damage(where: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise CorpusError(f"{where} is damaged or no archive of text files ({error}): download it again") from error
    except NotImplementedError as error:
        raise CorpusError(f"{where} is packed in a way Python cannot read ({error}): unpack it yourself") from error
