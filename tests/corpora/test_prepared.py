"""Corpora kept as ids in files: the characters of text8 and the shards of the 1B Word benchmark, on tiny copies."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from softmax_bottleneck import rank
from softmax_bottleneck.cli.environment import check
from softmax_bottleneck.core.files import sha256_json
from softmax_bottleneck.corpora import PREPARED, SPLITS, Vocabulary, catalogue, get, load, one_billion, path, text8
from softmax_bottleneck.errors import CorpusError
from softmax_bottleneck.training.epochs import columns

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


def _zipped(data: bytes, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, data)
    return buffer.getvalue()


def test_text8_is_its_characters_in_three_pieces(small: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert get("text8", sources=[small], cache=cache) == cache / "corpora" / "text8"
    corpus = load("text8", cache=cache)
    assert len(corpus.vocabulary) == 27
    texts = {split: "".join(corpus.vocabulary.decode(corpus.split(split))) for split in SPLITS}
    assert texts == {"train": TEXT[:68].decode(), "valid": TEXT[68:78].decode(), "test": TEXT[78:].decode()}
    assert all(isinstance(corpus.split(split), np.memmap) for split in SPLITS)
    assert columns(corpus.split("train"), 4).data_ptr() == corpus.split("train").ctypes.data
    assert corpus.sha256 == text8.FILE.sha256
    (info,) = (info for info in catalogue(cache=cache) if info.name == "text8")
    assert info.available
    assert info.path == path("text8", cache=cache)
    small.unlink()
    assert get("text8", sources=[small], cache=cache) == info.path  # whole already


def test_text8_from_an_archive_and_from_the_network(
    small: Path, tmp_path: Path, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = _zipped(TEXT, "text8")
    file = tmp_path / "text8.zip"
    file.write_bytes(archive)
    address = serve("/text8.zip", archive)
    get("text8", sources=[file], cache=tmp_path / "one")
    get("text8", urls=[address], cache=tmp_path / "two")
    monkeypatch.setattr(text8, "FILE", text8.FILE._replace(url=address))
    get("text8", cache=tmp_path / "three")
    found = [load("text8", cache=tmp_path / name).split("train").tolist() for name in ("one", "two", "three")]
    assert found[0] == found[1] == found[2]


def test_what_is_not_text8(small: Path, tmp_path: Path) -> None:
    small.write_bytes(TEXT.replace(b"class", b"klass"))
    with pytest.raises(CorpusError, match=r"is not the text8 of text8: SHA-256 .*; get an unchanged copy"):
        get("text8", sources=[small], cache=tmp_path)
    small.write_bytes(TEXT * 20_000)
    with pytest.raises(CorpusError, match="it is something else"):
        get("text8", sources=[small], cache=tmp_path)
    with pytest.raises(CorpusError, match="is not a file or a folder"):
        get("text8", sources=[tmp_path / "nothing"], cache=tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match=r"empty does not hold text8"):
        get("text8", sources=[tmp_path / "empty"], cache=tmp_path)
    with pytest.raises(CorpusError, match="text8 takes one source"):
        get("text8", sources=[small, small], cache=tmp_path)
    small.write_bytes(_zipped(TEXT[:-1], "more"))
    with pytest.raises(CorpusError, match="the member 'more' is not expected"):
        get("text8", sources=[small], cache=tmp_path)
    with pytest.raises(CorpusError, match="is not on this machine yet: run `bottleneck data get text8`"):
        load("text8", cache=tmp_path)


@pytest.mark.parametrize("damage", ["flipped", "cut", "removed"])
@pytest.mark.parametrize("name", ["train.ids", "test.ids", "vocabulary.json", "corpus.json"])
def test_a_damaged_copy_is_seen_and_made_again(name: str, damage: str, small: Path, tmp_path: Path) -> None:
    """Other ids, a word with another spelling, or a description with another hash."""
    folder = get("text8", sources=[small], cache=tmp_path)
    data = (folder / name).read_bytes()
    if damage == "removed":
        (folder / name).unlink()
    else:
        at = data.index(text8.FILE.sha256.encode()) if name == "corpus.json" else 8
        cut = damage == "cut"
        (folder / name).write_bytes(data[:-8] if cut else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])

    def read_all() -> None:
        corpus = load("text8", cache=tmp_path)
        for split in SPLITS:
            corpus.split(split)

    for read in (read_all, lambda: check(folder)) if damage == "flipped" else (read_all,):
        with pytest.raises(CorpusError, match=r"text8 is not whole .*: run `bottleneck data get text8` again"):
            read()
    get("text8", sources=[small], cache=tmp_path)
    assert (folder / name).read_bytes() == data
    assert check(folder).startswith("a complete corpus: 68 / 10 / 10 tokens")


def test_a_split_without_a_token_is_refused(small: Path, shards: Path, tmp_path: Path) -> None:
    """When it is made, and when its description says so under a checksum that holds."""
    for name in one_billion.SHARDS["valid"]:
        (shards / name).write_bytes(b"")
    with pytest.raises(CorpusError, match="the valid split of one-billion is empty: give files with text"):
        get("one-billion", sources=[shards], cache=tmp_path)
    assert not PREPARED["one-billion"].is_present(tmp_path)
    folder = get("text8", sources=[small], cache=tmp_path)
    (folder / "test.ids").write_bytes(b"")
    description = json.loads((folder / "corpus.json").read_text())
    del description["checksum"]
    description["tokens"]["test"] = 0
    description["files"]["test.ids"] = hashlib.sha256(b"").hexdigest()
    (folder / "corpus.json").write_text(json.dumps({**description, "checksum": sha256_json(description)}))
    for read in (lambda: load("text8", cache=tmp_path), lambda: rank("kn2:text8")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(tmp_path))
            with pytest.raises(CorpusError, match=r"text8 is not whole .*\(test\.ids holds no token\): run"):
                read()


def test_only_the_splits_that_are_read_are_checked(small: Path, tmp_path: Path) -> None:
    """Their files may be gigabytes."""
    folder = get("text8", sources=[small], cache=tmp_path)
    data = bytearray((folder / "train.ids").read_bytes())
    data[0] ^= 1
    (folder / "train.ids").write_bytes(data)
    corpus = load("text8", cache=tmp_path)
    assert len(corpus.split("test")) == 10
    with pytest.raises(CorpusError, match="choose one of train, valid, test"):
        corpus.split("dev")
    with pytest.raises(CorpusError, match=r"train\.ids"):
        corpus.split("train")


def test_another_vocabulary(small: Path, tmp_path: Path) -> None:
    get("text8", sources=[small], cache=tmp_path)
    own = load("text8", cache=tmp_path).vocabulary
    assert load("text8", cache=tmp_path, vocabulary=Vocabulary(own.tokens)).split("valid").tolist()
    with pytest.raises(CorpusError, match="text8 has another vocabulary"):
        load("text8", cache=tmp_path, vocabulary=Vocabulary(("a", "b")))


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


def test_the_shards_one_after_the_other(shards: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    get("one-billion", sources=[shards], cache=tmp_path, progress=lambda *step: seen.append(step))
    corpus = load("one-billion", cache=tmp_path)
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
    assert [step[1:] for step in seen] == [(number, 8) for number in range(1, 9)]


def test_changed_shards_are_another_corpus(shards: Path, tmp_path: Path) -> None:
    get("one-billion", sources=[shards], cache=tmp_path / "one")
    file = shards / one_billion.SHARDS["test"][1]
    file.write_bytes(file.read_bytes() + b"more\n")
    get("one-billion", sources=[shards], cache=tmp_path / "two")
    one, two = (load("one-billion", cache=tmp_path / name) for name in ("one", "two"))
    assert one.sha256 != two.sha256


def test_shards_that_are_not_there(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"one-billion is not downloaded: unpack .* --from FOLDER"):
        get("one-billion", cache=tmp_path)
    (shards / one_billion.SHARDS["valid"][1]).write_bytes(b"caf\xe9\n")
    with pytest.raises(CorpusError, match=r"a shard in .* is not UTF-8 \(.*\): unpack the benchmark again"):
        get("one-billion", sources=[shards], cache=tmp_path)
    (shards / one_billion.SHARDS["train"][1]).unlink()
    with pytest.raises(CorpusError, match=r"news\.en-00002-of-00100 is missing: one-billion is made of all shards"):
        get("one-billion", sources=[shards], cache=tmp_path)
    assert not PREPARED["one-billion"].is_present(tmp_path)
