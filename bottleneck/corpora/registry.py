"""What corpora there are, and how to load one by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import CorpusError
from . import python_docs
from .corpus import Corpus, load_folder
from .download import ByteCallback
from .downloadable import Downloadable
from .pinned import PINNED
from .prepared import PREPARED
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class CorpusInfo:
    """What is known of a corpus without downloading it.

    ``tokens`` (for each split, `EOS` counted) and ``vocabulary_size`` are None when they are not known.
    ``available`` says whether `load` can have it now. ``path`` is its folder in the cache, there or not; None
    for the built-in corpus.
    """

    name: str
    description: str
    licence: str
    tokens: Mapping[str, int] | None
    vocabulary_size: int | None
    available: bool
    path: Path | None


def load(name: str | Path, *, vocabulary: Vocabulary | None = None, cache: Path | None = None) -> Corpus:
    """Return a corpus as token ids.

    ``name`` is ``"python-docs"``, ``"ptb"``, ``"wikitext-2"``, ``"text8"``, ``"one-billion"``, or a folder with
    ``train.txt``, ``valid.txt`` and ``test.txt`` (a `Path` is always a folder). ``vocabulary``, a trained run's,
    encodes the text; without it the corpus makes its own. ``cache`` is the folder to use instead of the platform's.

    `CorpusError` when the corpus is unknown, not downloaded yet, incomplete, damaged, or does not fit
    ``vocabulary``.
    """
    known = _downloadable()
    if name == python_docs.NAME:
        return python_docs.load_python_docs(vocabulary=vocabulary)
    if isinstance(name, str) and name in known:
        return known[name].load(vocabulary=vocabulary, cache=cache)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return load_folder(folder, vocabulary=vocabulary)
    raise CorpusError(
        f"{str(name)!r} is {'a file, not a' if folder.exists() else 'no'} corpus: choose one of "
        f"{', '.join([python_docs.NAME, *known])}, or a folder that holds train.txt, valid.txt and test.txt"
    )


def catalogue(*, cache: Path | None = None) -> list[CorpusInfo]:
    """Return what `load` knows by name, the built-in corpus first."""
    return [
        _python_docs_info(),
        *(
            CorpusInfo(
                name=corpus.name,
                description=corpus.description,
                licence=corpus.licence,
                tokens=corpus.tokens,
                vocabulary_size=corpus.vocabulary_size,
                available=corpus.is_present(cache),
                path=corpus.folder(cache),
            )
            for corpus in _downloadable().values()
        ),
    ]


def get(
    name: str,
    *,
    sources: Sequence[Path] = (),
    urls: Sequence[str] = (),
    cache: Path | None = None,
    progress: ByteCallback | None = None,
) -> Path:
    """Bring a downloadable corpus into the cache and return its folder; an intact one is left alone.

    ``sources`` are folders, zip or tar archives, or text files to take it from; ``urls`` are addresses of
    archives or text files to download instead of the pinned ones. Files are recognized by their pinned
    SHA-256, whatever their names. ``progress(file_name, bytes_done, bytes_total)`` is called while
    downloading, with a total of 0 when the server does not say.

    `CorpusError` when a source holds something else, when files are still missing in the end (what was found
    is kept), or when there is no network; `OutputError` when the cache cannot be written.
    """
    corpus = _find(name)
    corpus.get(sources=sources, urls=urls, cache=cache, progress=progress)
    return corpus.folder(cache)


def path(name: str, *, cache: Path | None = None) -> Path:
    """Return the folder of a corpus in the cache; `CorpusError` when there is none."""
    return _find(name).path(cache)


def _downloadable() -> dict[str, Downloadable]:
    return {**PINNED, **PREPARED}


def _find(name: str) -> Downloadable:
    known = _downloadable()
    if name == python_docs.NAME:
        raise CorpusError(f"{name} is built into Python and has no folder: use it without getting it")
    if name not in known:
        raise CorpusError(
            f"{name!r} is no corpus that can be downloaded: choose one of {', '.join(known)}; "
            f"a folder of your own needs no getting"
        )
    return known[name]


def _python_docs_info() -> CorpusInfo:
    try:
        corpus = python_docs.load_python_docs()
    except CorpusError:
        corpus = None
    return CorpusInfo(
        name=python_docs.NAME,
        description="the reference text that Python's help() shows; nothing to download",
        licence="PSF licence; part of CPython",
        tokens=None if corpus is None else {split: len(ids) for split, ids in corpus.splits.items()},
        vocabulary_size=None if corpus is None else len(corpus.vocabulary),
        available=corpus is not None,
        path=None,
    )
