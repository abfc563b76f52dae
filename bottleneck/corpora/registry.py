"""The known corpora, and functions to load or download one by name."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..core import plugins
from ..core.files import CACHE_VARIABLE, exists, kind_of
from ..core.progress import SILENT, Progress
from ..errors import CorpusError, OutputError, meant
from . import python_docs
from .corpus import Corpus, load_folder
from .downloadable import PINNED, PREPARED, Downloadable
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class CorpusInfo:
    """Description of a corpus, without downloading it."""

    name: str
    description: str
    licence: str
    tokens: Mapping[str, int] | None
    """Number of tokens in each split, including `EOS`; ``None`` if unknown."""
    vocabulary_size: int | None
    """M; ``None`` if unknown."""
    available: bool
    """Whether `load` can read it now."""
    path: Path | None
    """Folder in the cache, which may not exist yet; ``None`` for the built-in corpus."""
    bytes: int | None
    """Size of that folder; ``None`` if there is none."""


def load(name: str | Path, *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Return a corpus as token ids.

    ``name`` is ``"python-docs"``, ``"ptb"``, ``"wikitext-2"``, ``"text8"``, ``"one-billion"``, ``"switchboard"``, or a
    folder with ``train.txt``, ``valid.txt`` and ``test.txt`` (a `Path` is always a folder). ``vocabulary``, a trained
    run's, encodes the text; without it the corpus makes its own. Downloaded corpora lie in
    ``$SOFTMAX_BOTTLENECK_CACHE``, by default in the user's cache.

    `CorpusError` when the corpus is unknown, not downloaded yet, incomplete, damaged, or does not fit ``vocabulary``.
    """
    downloadable = _downloadable()
    if name == python_docs.NAME:
        return python_docs.load_python_docs(vocabulary=vocabulary)
    if isinstance(name, str) and name in downloadable:
        return downloadable[name].load(vocabulary=vocabulary)
    folder = Path(name).expanduser()
    if kind_of(folder) == "a folder":
        return load_folder(folder, vocabulary=vocabulary)
    names = [python_docs.NAME, *downloadable]
    what = "a file, not a corpus" if exists(folder) else "not a corpus"
    raise CorpusError(
        f"{str(name)[:200]!r} is {what}: choose one of {', '.join(names)}, or a folder that holds train.txt, valid.txt "
        f"and test.txt{meant(str(name), names)}"
    )


def catalogue() -> list[CorpusInfo]:
    """Return all corpora that `load` knows by name, the built-in corpus first."""
    infos = [_python_docs_info()]
    for corpus in _downloadable().values():
        facts = {key: getattr(corpus, key) for key in ("name", "description", "licence", "tokens", "vocabulary_size")}
        size = size_of(corpus.folder) if corpus.folder.is_dir() else None
        infos.append(CorpusInfo(**facts, available=corpus.is_present(), path=corpus.folder, bytes=size))
    return infos


def get(
    name: str,
    *,
    sources: Sequence[Path] = (),
    urls: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Path:
    """Bring a downloadable corpus into the cache and return its folder; a complete one is not downloaded again.

    Args:
        name: name of the corpus.
        sources: folders, zip or tar archives, or text files that hold it. Files are recognized by their SHA-256,
            whatever their names.
        urls: addresses of archives or text files to download in place of the pinned ones.
        progress: where to report.

    Raises:
        CorpusError: for a source that holds something else, files that are still missing in the end (the others are
            kept), or a failed download.
        OutputError: for a cache that cannot be written.
    """
    corpus = _find(name)
    try:
        corpus.get(sources=sources, urls=urls, progress=progress)
    except OutputError as error:
        raise OutputError(f"{error} (corpora are kept in the cache; {CACHE_VARIABLE} moves it)") from error
    return corpus.folder


def path(name: str) -> Path:
    """Return the folder of a corpus in the cache; `CorpusError` when its files are not there."""
    corpus = _find(name)
    if not corpus.is_present():
        raise CorpusError(corpus.absent)
    return corpus.folder


def is_present(name: str) -> bool:
    """Return whether `load` knows this name and has its files."""
    return name == python_docs.NAME or (name in (known := _downloadable()) and known[name].is_present())


def remove(name: str) -> int:
    """Remove a corpus from the cache and return the number of bytes freed; `CorpusError` when there is none."""
    corpus = _find(name)
    if not corpus.folder.is_dir():
        raise CorpusError(corpus.absent)
    freed = size_of(corpus.folder)
    shutil.rmtree(corpus.folder)
    return freed


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _downloadable() -> dict[str, Downloadable]:
    """Return the corpora by name, those of other packages last; see docs/extending.md."""
    others = {name: plugins.find("corpora", name) for name in plugins.names("corpora")}
    return {**PINNED, **PREPARED, **others}


def _find(name: str) -> Downloadable:
    downloadable = _downloadable()
    if name == python_docs.NAME:
        raise CorpusError(f"{name} is built into Python and has no folder: use it without getting it")
    if name not in downloadable:
        raise CorpusError(
            f"{name!r} is not a known corpus: choose one of {', '.join(downloadable)}, or use a folder of your own by "
            f"its path{meant(name, downloadable)}"
        )
    return downloadable[name]


def _python_docs_info() -> CorpusInfo:
    tokens = size = None
    with suppress(CorpusError):  # this Python comes without the text
        corpus = python_docs.load_python_docs()
        tokens, size = {split: len(ids) for split, ids in corpus.splits.items()}, len(corpus.vocabulary)
    return CorpusInfo(
        name=python_docs.NAME,
        description="the reference text that Python's help() shows; nothing to download",
        licence="PSF licence; part of CPython",
        tokens=tokens,
        vocabulary_size=size,
        available=tokens is not None,
        path=None,
        bytes=None,
    )
