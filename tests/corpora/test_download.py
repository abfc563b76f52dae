"""Downloading, from a server on the loopback address."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from softmax_bottleneck.corpora import PinnedCorpus, get, load
from softmax_bottleneck.errors import CorpusError

Serve = Callable[..., str]
Texts = Mapping[str, bytes]


def test_the_pinned_addresses(served: PinnedCorpus, texts: Texts, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    get("tiny", cache=tmp_path, progress=lambda *call: calls.append(call))
    assert load("tiny", cache=tmp_path).vocabulary.tokens == ("a", "rose", "is", "<eos>", "<unk>", "?")
    assert calls == [(f"tiny.{split}.txt", len(text), len(text)) for split, text in texts.items()]


def test_only_what_is_missing_is_downloaded(served: PinnedCorpus, texts: Texts, tmp_path: Path) -> None:
    (tmp_path / "corpora" / "tiny").mkdir(parents=True)
    (tmp_path / "corpora" / "tiny" / "train.txt").write_bytes(texts["train"])
    names: list[str] = []
    get("tiny", cache=tmp_path, progress=lambda name, *_: names.append(name))
    assert names == ["tiny.valid.txt", "tiny.test.txt"]


def test_other_addresses_may_give_archives_and_files(
    tiny: PinnedCorpus, texts: Texts, serve: Serve, tmp_path: Path
) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", texts["train"])
        archive.writestr("b", texts["valid"])
    totals: set[int] = set()
    urls = [serve("/two.zip?raw=true", file.getvalue(), length=None), serve("/test", texts["test"])]
    get("tiny", urls=urls, cache=tmp_path, progress=lambda _name, _done, total: totals.add(total))
    assert load("tiny", cache=tmp_path).split("test").size == 9
    assert totals == {0, len(texts["test"])}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"<!doctype html><title>Sign in</title>", "is an HTML page, not data"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer, not data"),
        (b" a rose", r"is not the tiny\.train\.txt of tiny: SHA-256 \w+… with 7 bytes"),
        (bytes(2_000_000), "sends more than 1,048,649 bytes"),
    ],
    ids=["html", "lfs", "changed", "too big"],
)
def test_an_answer_that_is_something_else(
    served: PinnedCorpus, serve: Serve, tmp_path: Path, body: bytes, sentence: str
) -> None:
    url = serve("/tiny.train.txt", body)
    with pytest.raises(CorpusError, match=f"^{url} {sentence}"):
        get("tiny", cache=tmp_path)
    assert not list(tmp_path.rglob("*.txt"))


def test_an_endless_answer_is_cut_off(tiny: PinnedCorpus, serve: Serve, tmp_path: Path) -> None:
    done: list[int] = []
    url = serve("/endless", bytes(9_000_000), length=None)
    with pytest.raises(CorpusError, match="sends more than 1,048,649 bytes"):
        get("tiny", urls=[url], cache=tmp_path, progress=lambda _name, size, _total: done.append(size))
    assert max(done) <= 1_048_649


def test_a_broken_connection(served: PinnedCorpus, serve: Serve, texts: Texts, tmp_path: Path) -> None:
    serve("/tiny.test.txt", texts["test"][:10], length=len(texts["test"]))
    with pytest.raises(CorpusError, match=r"tiny\.test\.txt ended after 10 of 23 bytes: run the same command"):
        get("tiny", cache=tmp_path)
    assert sorted(file.name for file in tmp_path.rglob("*.txt")) == ["train.txt", "valid.txt"]
    serve("/tiny.test.txt", texts["test"])
    get("tiny", cache=tmp_path)


def test_an_address_that_is_not_there(tiny: PinnedCorpus, serve: Serve, tmp_path: Path) -> None:
    url = serve("/here", b"") + "/not"
    with pytest.raises(CorpusError, match=f"^{url} answered 404 Not Found: check the address, .* --from PATH"):
        get("tiny", urls=[url], cache=tmp_path)


def test_no_network(tiny: PinnedCorpus, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"could not be downloaded .*refused.*: check the network, .* --from PATH$"):
        get("tiny", cache=tmp_path)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "train.txt"])
def test_only_web_addresses(tiny: PinnedCorpus, tmp_path: Path, url: str) -> None:
    with pytest.raises(CorpusError, match="is not a web address: it must begin with https:// or http://"):
        get("tiny", urls=[url], cache=tmp_path)


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://127.0.0.1:port/", "http://127.0.0.1/a b"])
def test_an_address_that_makes_no_sense(tiny: PinnedCorpus, tmp_path: Path, url: str) -> None:
    with pytest.raises(CorpusError, match="could not be downloaded"):
        get("tiny", urls=[url], cache=tmp_path)
