"""The cache: filled once, checked when read, found again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from softmax_bottleneck.corpora import PINNED, SPLITS, PinnedCorpus, catalogue, get, load, path
from softmax_bottleneck.errors import CorpusError, OutputError

Texts = Mapping[str, bytes]
Write = Callable[[str, bytes], Path]


@pytest.fixture
def filled(tiny: PinnedCorpus, texts: Texts, write: Write, tmp_path: Path) -> Path:
    """A cache that holds the corpus ``tiny``."""
    for split, text in texts.items():
        write(f"cache/corpora/tiny/{split}.txt", text)
    return tmp_path / "cache"


def test_a_complete_corpus_is_left_alone(filled: Path) -> None:
    files = {file: file.stat().st_mtime_ns for file in filled.rglob("*.txt")}
    folder = get("tiny", sources=[Path("/nowhere")], cache=filled)
    assert folder == path("tiny", cache=filled) == filled / "corpora" / "tiny"
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == files
    assert len(files) == 3


def test_a_damaged_file_is_refused_and_then_replaced(filled: Path, texts: Texts, write: Write) -> None:
    place = filled / "corpora" / "tiny" / "valid.txt"
    place.write_bytes(texts["valid"].replace(b"rose", b"nose"))
    with pytest.raises(CorpusError, match=r"valid\.txt is damaged: .* run `bottleneck data get tiny`"):
        load("tiny", cache=filled)
    get("tiny", sources=[write("valid.txt", texts["valid"])], cache=filled)
    assert load("tiny", cache=filled).vocabulary.tokens == ("a", "rose", "is", "<eos>", "<unk>", "?")
    place.unlink()
    for ask in (load, path):
        with pytest.raises(CorpusError, match="not on this machine yet: run `bottleneck data get tiny`, with --from"):
            ask("tiny", cache=filled)


def test_the_variable_moves_the_cache(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(filled))
    assert path("tiny") == filled / "corpora" / "tiny"
    monkeypatch.delenv("SOFTMAX_BOTTLENECK_CACHE")
    assert catalogue()[1].path == user_cache_path("softmax-bottleneck") / "corpora" / "ptb"


@pytest.mark.parametrize("ask", [get, path])
def test_what_has_no_folder(ask: Callable[[str], Path]) -> None:
    with pytest.raises(CorpusError, match="python-docs is built into Python and has no folder"):
        ask("python-docs")
    with pytest.raises(CorpusError, match=r"'enwik8' cannot be downloaded: choose one of ptb, .*text8"):
        ask("enwik8")


def test_a_cache_that_cannot_be_written(tiny: PinnedCorpus, texts: Texts, write: Write) -> None:
    # A file in the folder's place: it stops root too, which a read-only folder does not.
    blocked = write("cache", b"")
    with pytest.raises(OutputError, match=r"cannot write .*tiny: .*SOFTMAX_BOTTLENECK_CACHE moves it"):
        get("tiny", sources=[write("train.txt", texts["train"])], cache=blocked)


def test_the_catalogue(filled: Path) -> None:
    infos = {info.name: info for info in catalogue(cache=filled)}
    assert list(infos) == ["python-docs", "ptb", "wikitext-2", "tiny", "text8", "one-billion", "switchboard"]
    assert infos["tiny"].available
    assert infos["tiny"].path == filled / "corpora" / "tiny"
    assert infos["tiny"].tokens == {split: len(load("tiny", cache=filled).split(split)) for split in SPLITS}
    assert (infos["ptb"].available, infos["ptb"].vocabulary_size) == (False, 10_000)
    built_in, info = load("python-docs"), infos["python-docs"]
    assert (info.available, info.path, info.vocabulary_size) == (True, None, len(built_in.vocabulary))
    assert info.tokens == {split: len(built_in.split(split)) for split in SPLITS}


@pytest.mark.parametrize("name", ["ptb", "wikitext-2"])
def test_the_pins_are_well_formed(name: str) -> None:
    corpus = PINNED[name]
    assert tuple(file.split for file in corpus.files) == SPLITS == tuple(corpus.tokens or ())
    assert all(len(bytes.fromhex(file.sha256)) == 32 for file in corpus.files)
    assert all(file.url.startswith("https://") and file.url.endswith(file.name) for file in corpus.files)
