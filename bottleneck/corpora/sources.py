"""Finding a corpus's files, by their bytes, in what was given: a folder, an archive, a text file."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import CorpusError
from ..files import sha256_bytes
from .archives import is_archive, read_members
from .pinned import PinnedCorpus, PinnedFile

_OVERHEAD = 1 << 20  # bytes an archive may hold beside the corpus: headers, padding, a README
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
_HTML = re.compile(rb"\s*(<(\?|!--)[^>]*>\s*)*<(!doctype\s+html|html|head)\b", re.IGNORECASE)


def size_limit(corpus: PinnedCorpus) -> int:
    """Return how many bytes a source of ``corpus`` may have, packed or unpacked."""
    return corpus.size + _OVERHEAD


def find_in_path(corpus: PinnedCorpus, source: Path) -> dict[str, bytes]:
    """Return the files of ``corpus``, by split, in a folder, an archive or a text file.

    In a folder only the files directly in it count, and of these those named or sized like one of the corpus.
    `CorpusError` when ``source`` is absent or unreadable, and as for `find_in_bytes`.
    """
    try:
        if source.is_dir():
            wanted = [path for path in sorted(source.iterdir()) if _looks_wanted(corpus, path)]
            return {split: data for path in wanted for split, data in find_in_path(corpus, path).items()}
        if not source.is_file():
            raise CorpusError(f"there is no file or folder {source}: give one that holds {corpus.name}")
        size = source.stat().st_size
        if size > size_limit(corpus):
            raise CorpusError(
                f"{source} has {size:,} bytes, more than all of {corpus.name} ({corpus.size:,}): it is something else"
            )
        return find_in_bytes(corpus, source.read_bytes(), where=str(source))
    except OSError as error:
        raise CorpusError(f"cannot read {source}: {error.strerror}; make it readable, or give a copy") from error


def find_in_bytes(corpus: PinnedCorpus, data: bytes, *, where: str) -> dict[str, bytes]:
    """Return the files of ``corpus``, by split, in the bytes of an archive or a text file from ``where``.

    A file is recognized by its pinned SHA-256, whatever its name. `CorpusError` for anything else, saying
    what it seems to be: an HTML page, a Git LFS pointer, a changed file, an unexpected member.
    """
    if not is_archive(data):
        return {_recognized(corpus, data, where=where, name=where).split: data}
    largest = max(file.size for file in corpus.files)
    found = {}
    for name, content in read_members(data, where=where, largest=largest, total=size_limit(corpus)):
        found[_recognized(corpus, content, where=f"{where}: the member {name!r}", name=name).split] = content
    return found


def _looks_wanted(corpus: PinnedCorpus, path: Path) -> bool:
    return path.is_file() and any(
        path.name in (file.name, f"{file.split}.txt") or path.stat().st_size == file.size for file in corpus.files
    )


def _recognized(corpus: PinnedCorpus, data: bytes, *, where: str, name: str) -> PinnedFile:
    digest = sha256_bytes(data)
    for file in corpus.files:
        if file.sha256 == digest:
            return file
    if _HTML.match(data[:4096]):
        raise CorpusError(f"{where} is an HTML page, not data: take the raw file's own address, or download it by hand")
    if data.startswith(_LFS_POINTER):
        raise CorpusError(f"{where} is a Git LFS pointer, not data: run `git lfs pull` where it came from")
    meant = _meant(corpus, name)
    if meant is None:
        names = ", ".join(file.name for file in corpus.files)
        raise CorpusError(f"{where} is not expected: {corpus.name} is made of {names} and nothing else; leave it out")
    raise CorpusError(
        f"{where} is not the {meant.name} of {corpus.name}: SHA-256 {digest[:12]}… with {len(data):,} bytes, "
        f"expected {meant.sha256[:12]}… with {meant.size:,}; get an unchanged copy"
    )


def _meant(corpus: PinnedCorpus, name: str) -> PinnedFile | None:
    """Return the file that ``name``, say ``wikitext-2.test.txt``, seems to stand for."""
    words = re.split(r"[^a-z]+", name.lower().rsplit("/", 1)[-1])
    return next((file for file in corpus.files if file.split in words), None)
