"""Taking a corpus from folders, archives, files and addresses, and refusing all that is not it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmax_bottleneck.core.progress import StreamProgress
from softmax_bottleneck.corpora import PinnedCorpus, get, load
from softmax_bottleneck.corpora.sources import files_in
from softmax_bottleneck.errors import BottleneckError, CorpusError

from .conftest import TEXTS, Serve, Write, zipped

Texts = Mapping[str, bytes]
Pack = Callable[[Texts], bytes]


def tarred(members: Texts) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def named(pattern: str = "tiny.{}.txt") -> dict[str, bytes]:
    return {pattern.format(split): text for split, text in TEXTS.items()}


def get_tiny(source: Path) -> Path:
    return get("tiny", sources=[source])


PACKED_TAR = [lambda members, pack=pack: pack(tarred(members)) for pack in (gzip.compress, bz2.compress, lzma.compress)]
PACKS = pytest.mark.parametrize("pack", [zipped, tarred, *PACKED_TAR], ids=["zip", "tar", "gz", "bz2", "xz"])


@PACKS
def test_an_archive_with_any_names_and_other_files(pack: Pack, tiny: PinnedCorpus, write: Write, cache: Path) -> None:
    """Nothing is unpacked, so that a name may lead anywhere."""
    folder = get_tiny(write("archive", pack({"README": b"hi", **named("/../deep/er/part-{}"), "x/LICENSE": b"mine"})))
    assert folder == cache / "tiny"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == named("{}.txt")
    corpus = load("tiny")
    assert {split: len(ids) for split, ids in corpus.splits.items()} == tiny.tokens
    assert len(corpus.vocabulary) == tiny.vocabulary_size


def test_parts_from_an_archive_and_a_folder_among_other_files(tiny: PinnedCorpus, write: Write, tmp_path: Path) -> None:
    archive = write("two.zip", zipped({"train.txt": TEXTS["train"], "valid.txt": TEXTS["valid"]}))
    with pytest.raises(CorpusError, match=r"tiny still lacks tiny\.test\.txt \(23 bytes\): the other files are kept"):
        get_tiny(archive)
    write("mine/notes.txt", b"not looked at")
    write("mine/tiny-v1.tgz", gzip.compress(tarred({"odd": TEXTS["test"]})))
    get_tiny(tmp_path / "mine")
    assert load("tiny").split("test").size == 9


ARCHIVE = zipped({"train.txt": TEXTS["train"] * 50})
ENCRYPTED = zipped(named()).replace(b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\1")
REFUSED: dict[str, tuple[bytes, str]] = {
    "another text": (b"a rose", r"bad does not hold tiny, by size and SHA-256 \(tiny\.train\.txt with 39 bytes, "),
    "a changed text": (TEXTS["train"].replace(b"rose", b"nose"), "does not hold tiny, by size and SHA-256"),
    "an archive of others": (ARCHIVE, "does not hold tiny, by size and SHA-256"),
    "a cut zip": (ARCHIVE[:-30], "does not hold tiny"),
    "an encrypted zip": (ENCRYPTED, "cannot read .*bad: .*encrypted.*; give a whole copy, or unpack it"),
    "a packed tar cut short": (gzip.compress(tarred(named()))[:-40], "cannot read .*bad: .*; give a whole copy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tiny: PinnedCorpus, write: Write, cache: Path) -> None:
    data, sentence = REFUSED[name]
    with pytest.raises(CorpusError, match=sentence):
        get_tiny(write("bad", data))
    assert not [*cache.rglob("*.txt")]


EDITS = st.lists(st.tuples(st.integers(0, 1 << 12), st.binary(min_size=1, max_size=6)), min_size=1, max_size=4)
ARCHIVES = [zipped(named()), tarred(named()), gzip.compress(tarred(named()))]


@settings(max_examples=100, deadline=None)
@given(data=st.sampled_from(ARCHIVES), edits=EDITS)
def test_a_damaged_archive_is_read_or_refused(
    data: bytes, edits: list[tuple[int, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file, changed = tmp_path_factory.getbasetemp() / "damaged", bytearray(data)
    for at, new in edits:
        changed[at % len(data) : at % len(data) + len(new)] = new
    file.write_bytes(changed)
    with suppress(BottleneckError):
        for each in files_in(file):
            each.read()


def test_the_pinned_addresses_of_what_is_missing(served: PinnedCorpus, serve: Serve, cache: Path, capsys: Any) -> None:
    """After a broken connection the same call fetches the rest."""
    serve("/tiny.test.txt", TEXTS["test"][:10], length=len(TEXTS["test"]))
    with pytest.raises(CorpusError, match=r"tiny\.test\.txt could not be downloaded \(.*: check the address"):
        get("tiny", progress=StreamProgress())
    assert capsys.readouterr().err == "train.txt: 39 bytes\nvalid.txt: 11 bytes\n"
    assert sorted(file.name for file in cache.rglob("*.txt")) == ["train.txt", "valid.txt"]
    serve("/tiny.test.txt", TEXTS["test"].replace(b"rose", b"nose"))
    with pytest.raises(CorpusError, match=r"could not be downloaded .*hash.* does not match the known hash"):
        get("tiny")
    serve("/tiny.test.txt", TEXTS["test"])
    get("tiny")
    assert load("tiny").vocabulary.tokens == ("a", "rose", "is", "<eos>", "<unk>", "?")


def test_other_addresses_may_give_archives_and_files(tiny: PinnedCorpus, serve: Serve) -> None:
    data = zipped({"a": TEXTS["train"], "b": TEXTS["valid"]})
    get("tiny", urls=[serve("/two.zip?raw=true", data, length=None), serve("/test", TEXTS["test"])])
    assert load("tiny").split("test").size == 9


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://", "http://[::1", "http://127.0.0.1:port/", "http://127.0.0.1:9/nothing"]
)
def test_an_address_that_gives_nothing(url: str, tiny: PinnedCorpus) -> None:
    with pytest.raises(CorpusError, match=r"not be downloaded \(.*\): check the address .* --from PATH$") as error:
        get("tiny", urls=[url])
    assert "0x" not in str(error.value)
