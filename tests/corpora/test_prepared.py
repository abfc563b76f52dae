"""Corpora kept as ids in files: the characters of text8 and the shards of the 1B Word benchmark, on tiny copies."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck.cli.doctor import check
from softmax_bottleneck.corpora import PREPARED, SPLITS, Vocabulary, get, load, one_billion, path, remove, text8
from softmax_bottleneck.errors import CorpusError
from softmax_bottleneck.training.epochs import columns

from .conftest import Serve, zipped

TEXT = b" anarchism originated as a term of abuse first used against early working class radicals"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file ``text8``, of 88 characters."""
    pinned = text8.FILE._replace(size=len(TEXT), sha256=hashlib.sha256(TEXT).hexdigest())
    monkeypatch.setattr(text8, "FILE", pinned)
    monkeypatch.setattr(text8, "TOKENS", {"train": 68, "valid": 10, "test": len(TEXT) - 78})
    file = tmp_path / "text8"
    file.write_bytes(TEXT)
    return file


def test_text8_is_its_characters_in_three_pieces(small: Path, cache: Path, serve: Serve, monkeypatch: Any) -> None:
    assert get("text8", sources=[small]) == cache / "text8" == path("text8")
    corpus = load("text8")
    assert len(corpus.vocabulary) == 27
    texts = {split: "".join(corpus.vocabulary.decode(corpus.split(split))) for split in SPLITS}
    assert texts == {"train": TEXT[:68].decode(), "valid": TEXT[68:78].decode(), "test": TEXT[78:].decode()}
    assert columns(corpus.split("train"), 4).data_ptr() == corpus.split("train").ctypes.data
    assert corpus.sha256 == text8.FILE.sha256
    small.unlink()
    get("text8", sources=[small])  # whole already
    assert load("text8", vocabulary=Vocabulary(corpus.vocabulary.tokens)).split("valid").tolist()
    with pytest.raises(CorpusError, match="text8 has another vocabulary"):
        load("text8", vocabulary=Vocabulary(("a", "b")))
    assert remove("text8") > 0
    from_network = replace(PREPARED["text8"], url=serve("/text8.zip", zipped({"text8": TEXT})))
    monkeypatch.setitem(PREPARED, "text8", from_network)
    get("text8")
    assert load("text8").sha256 == corpus.sha256


def test_what_is_not_text8(small: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    small.write_bytes(zipped({"more": TEXT[:-1]}))
    for sources, sentence in (
        ([tmp_path / "nothing"], "cannot read .*nothing"),
        ([tmp_path / "empty"], "empty does not hold text8"),
        ([small, small], "text8 takes one source"),
        ([small], "text8 does not hold text8, by size and SHA-256"),
    ):
        with pytest.raises(CorpusError, match=sentence):
            get("text8", sources=sources)
    with pytest.raises(CorpusError, match="is not on this machine yet: run `bottleneck data get text8`"):
        load("text8")


@pytest.mark.parametrize("name", ["test.ids", "vocabulary.json", "corpus.json"])
def test_a_damaged_copy_is_seen_and_made_again(name: str, small: Path) -> None:
    folder = get("text8", sources=[small])
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-8])
    with pytest.raises(CorpusError, match=r"text8 is not whole .*: run `bottleneck data get text8` again"):
        load("text8")
    get("text8", sources=[small])
    assert (folder / name).read_bytes() == data
    assert check(folder).startswith("a complete corpus: 68 / 10 / 10 tokens")


def test_only_the_splits_that_are_read_are_checked(small: Path) -> None:
    """Their files may be gigabytes."""
    file = get("text8", sources=[small]) / "train.ids"
    file.write_bytes(b"\xff" + file.read_bytes()[1:])
    corpus = load("text8")
    assert len(corpus.split("test")) == 10
    with pytest.raises(CorpusError, match="choose one of train, valid, test"):
        corpus.split("dev")
    with pytest.raises(CorpusError, match=r"train\.ids"):
        corpus.split("train")


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The benchmark in small: three training shards of 40 lines, five held-out ones of 6."""
    monkeypatch.setattr(one_billion, "VOCABULARY_SIZE", 12)
    monkeypatch.setattr(one_billion, "BYTES_AT_ONCE", 100)
    monkeypatch.setitem(one_billion.SHARDS, "train", one_billion.SHARDS["train"][:3])
    generator = np.random.default_rng(0)
    for split, names in one_billion.SHARDS.items():
        for name in names:
            file = tmp_path / "benchmark" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            rows = generator.geometric(0.15, size=(40 if split == "train" else 6, 7))
            text = "\n".join(" ".join(f"{'Wéw'[word % 3]}{word}" for word in row) for row in rows)
            file.write_text(text + "\n", encoding="utf-8")
    return tmp_path / "benchmark"


def test_the_shards_one_after_the_other(shards: Path) -> None:
    get("one-billion", sources=[shards])
    corpus = load("one-billion")
    texts = {
        split: [
            word
            for name in names
            for line in (shards / name).read_text(encoding="utf-8").splitlines()
            for word in [*line.lower().split(), "<eos>"]
        ]
        for split, names in one_billion.SHARDS.items()
    }
    ranked = sorted(Counter(word for word in texts["train"] if word != "<eos>").items(), key=lambda x: (-x[1], x[0]))
    assert corpus.vocabulary.tokens == ("<eos>", "<unk>", *(word for word, _ in ranked[:10]))
    for split, words in texts.items():
        expected = [word if word in corpus.vocabulary.index else "<unk>" for word in words]
        assert corpus.vocabulary.decode(corpus.split(split)) == expected
    assert "<unk>" in corpus.vocabulary.decode(corpus.split("test"))


def test_changed_shards_are_another_corpus(shards: Path) -> None:
    get("one-billion", sources=[shards])
    before, file = load("one-billion").sha256, shards / one_billion.SHARDS["test"][1]
    file.write_bytes(file.read_bytes() + b"more\n")
    assert remove("one-billion") > 0
    get("one-billion", sources=[shards])
    assert load("one-billion").sha256 != before


@pytest.mark.parametrize(
    ("split", "data", "sentence"),
    [
        ("valid", b"caf\xe9\n", r"a shard in .* is not UTF-8 \(.*\): unpack the benchmark again"),
        ("train", None, r"news\.en-00002-of-00100 is missing: one-billion is made of all shards"),
        ("test", b"", "the test split of one-billion is empty: give files with text"),
    ],
)
def test_shards_that_are_not_those(split: str, data: bytes | None, sentence: str, shards: Path) -> None:
    for name in one_billion.SHARDS[split] if data == b"" else one_billion.SHARDS[split][1:2]:
        (shards / name).unlink()
        if data is not None:
            (shards / name).write_bytes(data)
    with pytest.raises(CorpusError, match=sentence):
        get("one-billion", sources=[shards])
    assert not PREPARED["one-billion"].is_present()
    with pytest.raises(CorpusError, match=r"one-billion is not downloaded: unpack .* --from FOLDER"):
        get("one-billion")
