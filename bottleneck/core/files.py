"""Files: only regular ones are read, and each is written under a temporary name, flushed to disk, and renamed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import lzma
import math
import os
import re
import secrets
import shutil
import stat
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from platformdirs import user_cache_path

from ..errors import OutputError, SourceError, nearest
from .machine import free_memory

CACHE_VARIABLE = "SOFTMAX_BOTTLENECK_CACHE"
DAMAGE = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, SyntaxError, AttributeError),
    *(RuntimeError, ArithmeticError, MemoryError),  # sizes that no file has, headers that nest, and packed ones
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)
"""Errors of Python and NumPy for files that are truncated, changed, or of another kind."""
MAKER = "softmax-bottleneck"
"""What pages and figures name as their maker: only such ones are replaced."""
LFS_POINTER = b"version https://git-lfs"
"""Beginning of the text that stands for a file in a clone without git-lfs."""
ALWAYS, PACKED = 1 << 30, 1000
"""Bytes that any matrix may have, and the most for each stored byte: zlib's limit is 1,032."""


def cache_folder() -> Path:
    """Return the folder of corpora and unfinished computations: ``$SOFTMAX_BOTTLENECK_CACHE`` or the user's cache."""
    given = os.environ.get(CACHE_VARIABLE)
    folder = Path(given) if given else user_cache_path("softmax-bottleneck")
    if str(folder).startswith("~"):  # there is no home
        return Path(gettempdir()) / f"softmax-bottleneck-{os.getuid()}"
    return folder


def open_file(path: Path) -> BufferedReader:
    """Open a regular file to read its bytes; ``OSError`` for a pipe or a device, which may hang or never end.

    Raises:
        SourceError: for the pointer of Git LFS, which every reader would call damaged or take for a text.
    """
    if kind := kind_of(path):  # a socket cannot be opened at all
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    opened = path.open("rb")
    if opened.peek(len(LFS_POINTER)).startswith(LFS_POINTER):
        opened.close()
        raise SourceError(f"{path} is a Git LFS pointer in place of the file: run 'git lfs pull' in its folder")
    return opened


def begins_with(path: Path, magic: bytes) -> bool:
    """Return whether a path is that of a regular file that begins with some bytes."""
    with suppress(OSError, ValueError, SourceError), open_file(path) as file:
        return file.read(len(magic)) == magic
    return False


def check_size(shape: tuple[int, ...], itemsize: int, *, stored: int, what: str, whole: bool = False) -> None:
    """Refuse a matrix that is far larger than what it is stored in, or than memory if it is read as a whole.

    Raises:
        SourceError: with both sizes.
    """
    declared = math.prod(map(int, shape)) * itemsize
    if declared > max(ALWAYS, PACKED * stored):
        raise SourceError(
            f"{what} takes {declared / 2**30:,.1f} GiB, and only {stored:,} bytes of it are stored: it repeats a few "
            "numbers or is damaged; save all of its entries"
        )
    if whole and declared > (free := free_memory()):
        raise SourceError(
            f"{what} takes {declared / 2**30:,.1f} GiB, is read as a whole, and {free / 2**30:.1f} GiB are free: save "
            "it as .npy, which is read row by row"
        )


def kind_of(path: Path) -> str:
    """Return ``"a folder"``, ``"a pipe"``, ``"a socket"`` or ``"a device"``; ``""`` for a file, or where none is."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    kinds |= {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(path.stat().st_mode), "") if exists(path) else ""


def exists(path: Path) -> bool:
    """Return whether something can be found under ``path``, whatever text it was made from."""
    try:
        path.stat()
    except (OSError, ValueError):  # none is there, or none can be: the name is too long, or holds a NUL
        return False
    return True


def meant_path(path: Path) -> str:
    """Return the question whether the file or folder of the nearest name is meant, or an empty string."""
    try:
        names = [each.name for each in path.parent.iterdir()]
    except (OSError, ValueError):
        return ""
    near = nearest(path.name, names)
    return f"; did you mean {path.with_name(near[0])}?" if near else ""


def sha256_bytes(data: bytes | memoryview) -> str:
    """Return the SHA-256 of ``data`` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Return the SHA-256 of ``value`` as JSON with sorted keys."""
    return sha256_bytes(json.dumps(value, sort_keys=True, allow_nan=False).encode())


@contextmanager
def explain_output_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` while writing ``path`` into an `OutputError` with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "the disk is full: free some space or choose another folder, then run the same command again"
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            remedy = "the place is not writable: name another one"
        elif error.errno in (errno.EEXIST, errno.ENOTDIR):
            remedy = "a file stands where a folder is needed: choose another folder"
        else:
            remedy = error.strerror or str(error)
        raise OutputError(f"cannot write {path}: {remedy}") from error


def make_folder(path: Path) -> Path:
    """Create ``path`` and its parents; `OutputError` when that is impossible."""
    with explain_output_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def only_process(folder: Path) -> Iterator[bool]:
    """Lock a folder inside the block; yield whether no other process holds its lock.

    The lock ends with the process. On a file system without locks the result is always true.

    Raises:
        OutputError: for a folder that cannot be opened.
    """
    with explain_output_errors(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except OSError as error:
        alone = error.errno != errno.EWOULDBLOCK
    try:
        yield alone
    finally:
        if alone:
            with suppress(OSError):  # there are no locks
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked inside keeps a copy of the descriptor
        os.close(descriptor)


def is_drawn(path: Path) -> bool:
    """Return whether a page or a figure names this package as its maker."""
    data, marks = (
        path.read_bytes(),
        ("Software\0{}", "/Creator ({})", "<dc:title>{}</", 'name="generator" content="{} '),
    )
    return any(mark.format(MAKER).encode() in data for mark in marks)


def is_special(path: Path) -> bool:
    """Return whether ``path`` is, or links to, a device, a pipe or a socket, which cannot be replaced."""
    return kind_of(path) not in ("", "a folder")


def followed(path: Path) -> Path:
    """Return the target of a link, which may not exist; for any other path return the path."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; flush the file and rename it to ``path`` when the block succeeds.

    After a failure, a full disk or a kill, ``path`` is unchanged. For a link, its target is replaced. For a device or a
    pipe, the content is written to it when the block succeeds. The mode of the file that is replaced is kept, and what
    a killed process left behind of the same file is removed.
    """
    if is_special(path):
        with explain_output_errors(path), TemporaryDirectory() as folder:
            temporary = Path(folder) / path.name
            yield temporary
            with temporary.open("rb") as data, path.open("wb") as special:
                shutil.copyfileobj(data, special)
        return
    target = followed(path)
    with explain_output_errors(path):
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        for leftover in unfinished(target.parent, target.name):
            _remove_if_abandoned(leftover)
        temporary, lock = _temporary(target, 0o666 if mode is None else mode | stat.S_IWUSR)
    try:
        with explain_output_errors(path):
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(target)
            _flush_folder(target.parent)
    finally:
        with suppress(OSError):  # the original error is more useful
            temporary.unlink(missing_ok=True)
        os.close(lock)


def unfinished(folder: Path, name: str = "") -> list[Path]:
    """Return the temporary files that killed processes left in ``folder`` while they wrote ``name``, or any file."""
    pattern = re.compile(rf"\.{re.escape(name) or '.+'}\.[0-9a-f]+\.part")
    return sorted(file for file in folder.glob(".*.part") if pattern.fullmatch(file.name))


def _temporary(target: Path, mode: int) -> tuple[Path, int]:
    """Create a file of an unpredictable name beside ``target``; return it with its descriptor, which locks it."""
    while True:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)  # another process took it for abandoned before it was locked


def _remove_if_abandoned(file: Path) -> None:
    """Remove a temporary file that no living process has locked."""
    with suppress(OSError), open_file(file) as opened:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.unlink()


def _flush_folder(folder: Path) -> None:
    """Flush a folder to disk, so that a rename in it survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def json_bytes(value: Any) -> bytes:
    """Return ``value`` as indented JSON with a final newline; NaN and infinities are refused."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode(
        errors="backslashreplace"  # half a surrogate, as in a name that is not UTF-8: the same in JSON
    )


def json_lines(rows: Iterable[Any]) -> bytes:
    """Return values as lines of JSON, one for each."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON to ``path`` atomically."""
    write_bytes(path, json_bytes(value))
