"""The cache: filled once, checked when read, found again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from softmax_bottleneck.corpora import SPLITS, PinnedCorpus, catalogue, get, load, path
from softmax_bottleneck.errors import CorpusError, OutputError

from .conftest import TEXTS, Write


@pytest.fixture
def filled(tiny: PinnedCorpus, write: Write, cache: Path) -> Path:
    """The folder of the corpus ``tiny`` in the cache."""
    for split, text in TEXTS.items():
        write(f"cache/corpora/tiny/{split}.txt", text)
    return cache / "tiny"


def test_a_damaged_file_is_refused_and_then_replaced(filled: Path, write: Write) -> None:
    place = filled / "valid.txt"
    place.write_bytes(TEXTS["valid"].replace(b"rose", b"nose"))
    with pytest.raises(CorpusError, match=r"valid\.txt is damaged: .* run `bottleneck data get tiny`"):
        load("tiny")
    get("tiny", sources=[write("valid.txt", TEXTS["valid"])])
    assert get("tiny", sources=[Path("/nowhere")]) == path("tiny") == filled  # whole: nothing is read
    assert load("tiny").vocabulary.tokens == ("a", "rose", "is", "<eos>", "<unk>", "?")
    place.unlink()
    for ask in (load, path):
        with pytest.raises(CorpusError, match="not on this machine yet: run `bottleneck data get tiny`, with --from"):
            ask("tiny")


@pytest.mark.parametrize("ask", [get, path])
def test_what_has_no_folder(ask: Callable[[str], Path]) -> None:
    with pytest.raises(CorpusError, match="python-docs is built into Python and has no folder"):
        ask("python-docs")
    with pytest.raises(CorpusError, match=r"'enwik8' is not a known corpus: choose one of ptb, .*text8"):
        ask("enwik8")


def test_a_cache_that_cannot_be_written(tiny: PinnedCorpus, write: Write) -> None:
    write("cache", b"")  # it stops root too, which a read-only folder does not
    with pytest.raises(OutputError, match=r"cannot write .*tiny: .*SOFTMAX_BOTTLENECK_CACHE moves it"):
        get("tiny", sources=[write("train.txt", TEXTS["train"])])


def test_the_catalogue(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    infos = {info.name: info for info in catalogue()}
    assert list(infos) == ["python-docs", "ptb", "wikitext-2", "tiny", "text8", "one-billion", "switchboard"]
    assert (infos["tiny"].available, infos["tiny"].path) == (True, filled)
    assert infos["tiny"].tokens == {split: len(load("tiny").split(split)) for split in SPLITS}
    assert (infos["ptb"].available, infos["ptb"].vocabulary_size) == (False, 10_000)
    built_in, info = load("python-docs"), infos["python-docs"]
    assert (info.available, info.path, info.vocabulary_size) == (True, None, len(built_in.vocabulary))
    assert info.tokens == {split: len(built_in.split(split)) for split in SPLITS}
    monkeypatch.delenv("SOFTMAX_BOTTLENECK_CACHE")
    assert catalogue()[1].path == user_cache_path("softmax-bottleneck") / "corpora" / "ptb"
