"""Archives made to keep their reader busy: refused in a sentence, each in a process that has a minute for it."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

BLOCK = 512
READ = """
import sys
from pathlib import Path
from softmax_bottleneck.corpora.archives import read_members
from softmax_bottleneck.errors import CorpusError
try:
    for name, data in read_members(Path(sys.argv[1]).read_bytes(), where="a.tar", largest=1 << 20, total=1 << 24):
        print(name, len(data))
except CorpusError as error:
    print("refused:", error)
"""


def _header(name: str, size: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return a tar header whose size field is ``size``, with the right checksum."""
    info = tarfile.TarInfo(name)
    info.type = kind
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _binary(size: int) -> bytes:
    """Return a size as GNU tar writes one that octal digits cannot hold."""
    return (256**12 + size).to_bytes(12, "big") if size < 0 else b"\x80" + size.to_bytes(11, "big")


def _extended(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """Return an extended header (POSIX 1003.1-2001) with its records."""
    return _header("pax", b"%011o\0" % len(records), kind) + records.ljust(-(-len(records) // BLOCK) * BLOCK, b"\0")


def _sparse() -> bytes:
    """Return a member that is one byte on disk and says it is a mebibyte of zeros."""
    header = bytearray(_header("train.txt", b"%011o\0" % 0, tarfile.GNUTYPE_SPARSE))
    header[257:265] = b"ustar  \0"
    header[483:495] = b"%011o\0" % (1 << 20)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


END = bytes(2 * BLOCK)
NEGATIVE = "has a negative size"
MADE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a junk member one block back": (lambda: _header("README", _binary(-BLOCK)) + END, NEGATIVE),
    "the same in octal digits": (lambda: _header("README", b"-0000001000\0") + END, NEGATIVE),
    "a text two blocks back": (lambda: _header("a", bytes(12)) + _header("b", _binary(-2 * BLOCK)) + END, NEGATIVE),
    "a folder": (lambda: _header("folder/", _binary(-BLOCK), tarfile.DIRTYPE) + END, NEGATIVE),
    "a long name": (lambda: _header("name", _binary(-BLOCK), tarfile.GNUTYPE_LONGNAME) + END, NEGATIVE),
    "an extended header": (lambda: _header("pax", _binary(-BLOCK), tarfile.XHDTYPE) + END, NEGATIVE),
    "a size in an extended header": (
        lambda: _extended(b"14 size=-1536\n") + _header("README", bytes(12)) + END,
        NEGATIVE,
    ),
    "an extended header of digits alone": (
        lambda: _extended(b"1" * (1 << 20)) + _header("README", bytes(12)) + END,
        "has a header of 1,048,576 bytes",
    ),
    "extended headers without end": (lambda: _extended(b"9 a=bcde\n") * 5000 + END, "is damaged or not an archive"),
    "a size that no file has": (
        lambda: _header("README", b"\x80" + b"\x7f" * 11) + END,
        "is damaged or not an archive",
    ),
    "a sparse file": (lambda: _sparse() + END, "a sparse file; only plain files are read"),
}


@pytest.mark.parametrize("name", MADE)
def test_it_is_refused_in_time(name: str, tmp_path: Path) -> None:
    make, sentence = MADE[name]
    (tmp_path / "a.tar").write_bytes(make())
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "a.tar")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if sys.version_info >= (3, 13):  # its tarfile words it in another way, or ends the archive before the damage
        assert all(line == "a 0" or line.startswith("refused: a.tar") for line in lines)
        return
    assert lines[-1].startswith("refused: a.tar")
    assert sentence in done.stdout


def test_long_names_and_extended_headers_are_read(tmp_path: Path) -> None:
    from softmax_bottleneck.corpora.archives import read_members

    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        file, name = io.BytesIO(), f"{'long/' * 60}ü.txt"
        with tarfile.open(fileobj=file, mode="w", format=form) as archive:
            info = tarfile.TarInfo(name)
            info.size = 3
            archive.addfile(info, io.BytesIO(b"abc"))
        assert [*read_members(file.getvalue(), where="a.tar", largest=9, total=1 << 20)] == [(name, b"abc")]
