"""Texts and archives that are not a corpus."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from attacks import damage, promise
from attacks.damage import Damage

TEXTS: dict[str, tuple[Damage, str]] = {
    "UTF-16": (lambda path: path.write_bytes(path.read_text().encode("utf-16")), "is not UTF-8"),
    "NUL bytes": (lambda path: path.write_bytes(path.read_bytes()[:50] + b"\0"), "holds a NUL byte"),
    "Latin-1": (damage.write(b"caf\xe9\n"), "is not UTF-8"),
    "empty": (damage.write(b""), "is empty"),
    "blanks": (damage.write(b"  \n\n \n"), "is empty"),
    "a pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "is a pipe or a device"),
    "a folder": (damage.folder_instead, "Is a directory"),
    "a link to itself": (damage.loop, "Too many levels"),
    "removed": (damage.remove, "there is no|is missing|cannot read"),
}


READERS = {
    "text/train.txt": "rank kn2:text",
    "text/test.txt": "rank run --data text",
    "text/valid.txt": "train --config config.json --out new --set corpus=text",
    "words.txt": "rank hf --data words.txt",
}
CASES = [*((name, "text/train.txt") for name in TEXTS), *(("UTF-16", file) for file in READERS)]


@pytest.mark.parametrize(("name", "file"), CASES)
def test_a_text_that_is_none(name: str, file: str, place: Callable[..., Path]) -> None:
    folder, (change, sentence) = place("text", "run", "config.json", "words.txt", "hf"), TEXTS[name]
    change(folder / file)
    before = promise.snapshot(folder) if name != "a pipe" else {}
    assert any(part in promise.check(promise.run(READERS[file].split())) for part in sentence.split("|"))
    promise.check_kept(before, folder)


def _tar(*members: tarfile.TarInfo, data: bytes = b"", change: Callable[[bytes], bytes] = bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(data) if member.size else None)
    return change(buffer.getvalue())


def _member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, target
    return info


def _claimed(size: int) -> bytes:
    """Return a tar whose only member claims a size."""
    info = tarfile.TarInfo("train.txt")
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def _zip(name: str, data: bytes = b"a b c\n") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


_LONG = _member("x" * 200).tobuf(tarfile.GNU_FORMAT)[:1024]
"""The header of a long name, without the member that it names."""
ARCHIVES: dict[str, bytes] = {
    "no archive": b"PK\x03\x04",
    "an empty zip": _zip("x")[-22:],
    "a zip cut short": _zip("train.txt")[:-9],
    "a zip bomb": _zip("train.txt", bytes(50 << 20)),
    "an absolute name": _zip("/etc/passwd"),
    "a name that leads outside": _zip("../train.txt"),
    "a name that steers a terminal": _zip("\x1b[2Jtrain.txt"),
    "a tar of nothing": bytes(10240),
    "a member of 8 TB": _claimed(8 << 40),
    "a member of a negative size": _claimed(-512),
    "a link": _tar(_member("train.txt", kind=tarfile.SYMTYPE, target="/etc/passwd")),
    "a device": _tar(_member("train.txt", kind=tarfile.CHRTYPE)),
    "long names that follow each other": _LONG * 3000,
    "extended headers that follow each other": _member("x", kind=tarfile.XHDTYPE).tobuf() * 3000,
    "a packed tar cut short": gzip.compress(_tar(_member("train.txt", 4), data=b"a b\n"))[:-12],
    "a packed bomb": gzip.compress(bytes(50 << 20)),
    "an HTML page": b"<!DOCTYPE html><html></html>",
    "noise": bytes(range(256)) * 8,
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_is_none(name: str, place: Callable[..., Path]) -> None:
    folder = place()
    (folder / "archive").write_bytes(ARCHIVES[name])
    before = promise.snapshot(folder)
    promise.check(promise.run(["data", "get", "ptb", "--from", "archive"]))
    promise.check_kept(before, folder)
