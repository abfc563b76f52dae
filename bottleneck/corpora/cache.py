"""Downloadable corpora on this machine: brought in whole and intact, and checked again when read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import CorpusError, OutputError
from ..files import CACHE_VARIABLE, cache_folder, make_folder, sha256_bytes, write_bytes
from . import python_docs
from .corpus import Text
from .download import ByteCallback, download
from .pinned import PINNED, PinnedCorpus, PinnedFile
from .sources import find_in_bytes, find_in_path, size_limit


def corpus_folder(corpus: PinnedCorpus, *, cache: Path | None = None) -> Path:
    """Return where ``corpus`` is kept: in ``cache``, ``$SOFTMAX_BOTTLENECK_CACHE``, or the user's cache."""
    return (cache or cache_folder()) / "corpora" / corpus.name


def is_present(corpus: PinnedCorpus, *, cache: Path | None = None) -> bool:
    """Return whether all files of ``corpus`` are in the cache with their sizes; `read` checks the bytes."""
    return all(_size(place) == file.size for file, place in _places(corpus, cache))


def path(name: str, *, cache: Path | None = None) -> Path:
    """Return the folder of a downloaded corpus; `CorpusError` when there is none."""
    corpus = _pinned(name)
    if not is_present(corpus, cache=cache):
        raise CorpusError(_absent(corpus))
    return corpus_folder(corpus, cache=cache)


def read(corpus: PinnedCorpus, *, cache: Path | None = None) -> dict[str, Text]:
    """Return the three texts of ``corpus``; `CorpusError` when one is absent or not the pinned bytes."""
    texts = {}
    for file, place in _places(corpus, cache):
        try:
            data = place.read_bytes()
        except FileNotFoundError:
            raise CorpusError(_absent(corpus)) from None
        except OSError as error:
            raise CorpusError(f"cannot read {place}: {error.strerror}; {_get_again(corpus)}") from error
        if not _is_intact(file, data):
            raise CorpusError(f"{place} is damaged: its SHA-256 is not the pinned one; {_get_again(corpus)}")
        texts[file.split] = Text(where=str(place), data=data)
    return texts


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
    corpus = _pinned(name)
    missing = _missing(corpus, cache)
    if missing:
        with _explain_cache_errors():
            make_folder(corpus_folder(corpus, cache=cache))
        for found in _found(corpus, missing, sources=sources, urls=urls, progress=progress):
            _store(corpus, found, cache)
    if missing := _missing(corpus, cache):
        raise CorpusError(
            f"{name} still lacks {', '.join(f'{file.name} ({file.size:,} bytes)' for file in missing)}: "
            f"what was found is kept, give the rest with another --from PATH"
        )
    return corpus_folder(corpus, cache=cache)


def _found(
    corpus: PinnedCorpus,
    missing: list[PinnedFile],
    *,
    sources: Iterable[Path],
    urls: Iterable[str],
    progress: ByteCallback | None,
) -> Iterator[dict[str, bytes]]:
    """Yield what each source or address gave; the pinned addresses only when the caller named nothing."""
    for source in sources:
        yield find_in_path(corpus, Path(source))
    limit = size_limit(corpus)
    for url in urls:
        yield find_in_bytes(corpus, download(url, limit=limit, progress=progress), where=url)
    if not sources and not urls:
        for file in missing:
            data = download(file.url, limit=limit, progress=progress)
            yield find_in_bytes(corpus, data, where=file.url)


def _store(corpus: PinnedCorpus, found: dict[str, bytes], cache: Path | None) -> None:
    for file, place in _places(corpus, cache):
        if file.split in found:
            with _explain_cache_errors():
                write_bytes(place, found[file.split])


def _missing(corpus: PinnedCorpus, cache: Path | None) -> list[PinnedFile]:
    return [file for file, place in _places(corpus, cache) if not _is_intact(file, _data(place))]


def _places(corpus: PinnedCorpus, cache: Path | None) -> Iterator[tuple[PinnedFile, Path]]:
    folder = corpus_folder(corpus, cache=cache)
    return ((file, folder / f"{file.split}.txt") for file in corpus.files)


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _data(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _is_intact(file: PinnedFile, data: bytes | None) -> bool:
    return data is not None and len(data) == file.size and sha256_bytes(data) == file.sha256


def _pinned(name: str) -> PinnedCorpus:
    if name == python_docs.NAME:
        raise CorpusError(f"{name} is built into Python and has no folder: use it without getting it")
    if name not in PINNED:
        raise CorpusError(
            f"{name!r} is no corpus that can be downloaded: choose one of {', '.join(PINNED)}; "
            f"a folder of your own needs no getting"
        )
    return PINNED[name]


def _absent(corpus: PinnedCorpus) -> str:
    return (
        f"{corpus.name} is not on this machine yet: run `bottleneck data get {corpus.name}`, "
        f"with --from PATH if you have it as a file"
    )


def _get_again(corpus: PinnedCorpus) -> str:
    return f"run `bottleneck data get {corpus.name}` to get it again"


@contextmanager
def _explain_cache_errors() -> Iterator[None]:
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{error} (corpora are kept in the cache; {CACHE_VARIABLE} moves it)") from error
