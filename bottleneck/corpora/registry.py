"""What corpora there are, and how to load one by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import CorpusError
from . import cache as pinned_cache
from . import python_docs
from .cache import corpus_folder, is_present, read
from .corpus import Corpus, corpus_of
from .download import ByteCallback
from .folder import load_folder
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
    if name == python_docs.NAME:
        return python_docs.load_python_docs(vocabulary=vocabulary)
    if isinstance(name, str) and name in PINNED:
        return corpus_of(name, read(PINNED[name], cache=cache), vocabulary=vocabulary)
    if isinstance(name, str) and name in PREPARED:
        return PREPARED[name].read(vocabulary=vocabulary, cache=cache)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return load_folder(folder, vocabulary=vocabulary)
    known = ", ".join([python_docs.NAME, *PINNED, *PREPARED])
    found = "is a file, not a corpus" if folder.exists() else "is no corpus"
    raise CorpusError(
        f"{str(name)!r} {found}: choose one of {known}, or a folder that holds train.txt, valid.txt and test.txt"
    )


def catalogue(*, cache: Path | None = None) -> list[CorpusInfo]:
    """Return what `load` knows by name, the built-in corpus first."""
    return (
        [_python_docs_info()]
        + [
            CorpusInfo(
                name=corpus.name,
                description=corpus.description,
                licence=corpus.licence,
                tokens=corpus.tokens,
                vocabulary_size=corpus.vocabulary_size,
                available=is_present(corpus, cache=cache),
                path=corpus_folder(corpus, cache=cache),
            )
            for corpus in PINNED.values()
        ]
        + [
            CorpusInfo(
                name=corpus.name,
                description=corpus.description,
                licence=corpus.licence,
                tokens=corpus.tokens,
                vocabulary_size=corpus.vocabulary_size,
                available=corpus.is_present(cache),
                path=corpus.folder(cache),
            )
            for corpus in PREPARED.values()
        ]
    )


def get(
    name: str,
    *,
    sources: Sequence[Path] = (),
    urls: Sequence[str] = (),
    cache: Path | None = None,
    progress: ByteCallback | None = None,
) -> Path:
    """Bring a corpus into the cache and return its folder; see `cache.get` and `PreparedCorpus.get`."""
    if name in PREPARED:
        return PREPARED[name].get(sources=sources, urls=urls, cache=cache, progress=progress)
    return pinned_cache.get(name, sources=sources, urls=urls, cache=cache, progress=progress)


def path(name: str, *, cache: Path | None = None) -> Path:
    """Return the folder of a corpus in the cache; `CorpusError` when there is none."""
    if name in PREPARED:
        PREPARED[name].read(cache=cache)
        return PREPARED[name].folder(cache)
    return pinned_cache.path(name, cache=cache)


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
