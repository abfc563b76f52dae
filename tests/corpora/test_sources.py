"""Taking a corpus from folders, archives, files and addresses, and refusing all that is not it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from softmax_bottleneck.corpora import PinnedCorpus, get, load
from softmax_bottleneck.corpora.archives import read_members
from softmax_bottleneck.errors import CorpusError

from .conftest import TEXTS, Serve, Write

Texts = Mapping[str, bytes]
Pack = Callable[[Texts], bytes]
JUNK = {
    "__MACOSX/._tiny.train.txt": b"\0",
    "tiny/.DS_Store": b"\0",
    "tiny/README": b"hi",
    "LICENSE.txt": b"mine",
}


def zipped(members: Texts) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def tarred(members: Texts, *, kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name.endswith("/") else kind
            info.size, info.linkname = len(data), "/etc/passwd"
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def named(pattern: str = "tiny.{}.txt") -> dict[str, bytes]:
    return {pattern.format(split): text for split, text in TEXTS.items()}


def get_tiny(source: Path) -> Path:
    return get("tiny", sources=[source])


PACKED_TAR = [lambda members, pack=pack: pack(tarred(members)) for pack in (gzip.compress, bz2.compress, lzma.compress)]


@pytest.mark.parametrize("pack", [zipped, tarred, *PACKED_TAR], ids=["zip", "tar", "gz", "bz2", "xz"])
def test_an_archive_with_any_names_and_junk(pack: Pack, tiny: PinnedCorpus, write: Write, cache: Path) -> None:
    """Nothing is unpacked, so that a name may lead anywhere."""
    folder = get_tiny(write("archive", pack({**JUNK, **named("/../deep/er/part-{}")})))
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
    write("mine/odd", TEXTS["test"])
    write("mine/tiny.valid.txt", TEXTS["valid"])
    get_tiny(tmp_path / "mine")
    assert load("tiny").split("test").size == 9


@pytest.mark.parametrize("others", [[], ["tiny.train.txt"], ["archives of others"]])
def test_an_archive_in_a_folder(others: list[str], tiny: PinnedCorpus, write: Write, tmp_path: Path) -> None:
    """The only one, or the one with the corpus's name."""
    write("mine/tiny-v1.tgz" if others else "mine/download", tarred(named()))
    write("mine/notes.txt", b"not looked at")
    if "tiny.train.txt" in others:
        write("mine/tiny.train.txt", TEXTS["train"])
    elif others:
        write("mine/other.zip", zipped({"test.txt": b"of another corpus"}))
    get_tiny(tmp_path / "mine")
    assert load("tiny").split("test").size == 9


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("README.exe", "is not expected: tiny is made of tiny.train.txt"),
        ("../train.txt", "is not the tiny.train.txt of tiny: SHA-256 "),
    ],
)
def test_a_member_that_does_not_belong(
    name: str, sentence: str, pack: Pack, tiny: PinnedCorpus, write: Write, cache: Path
) -> None:
    source = write("bad.archive", pack({**named("x/{}"), name: b"something else"}))
    with pytest.raises(CorpusError) as caught:
        get_tiny(source)
    assert str(caught.value).startswith(f"{source}: the member {name!r} {sentence}")
    assert not cache.exists()


def _changed(data: bytes, field: bytes, *, local: int, central: int) -> bytes:
    """Change a field in both headers of a zip's member: APPNOTE.TXT, 4.3.7 and 4.3.12."""
    changed = bytearray(data)
    for header, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = data.index(header) + offset
        changed[at : at + len(field)] = field
    return bytes(changed)


SMALL, TRAIN = zipped({"t": b"a"}), zipped({"train.txt": bytes(500_000)})
LINKS = (tarfile.SYMTYPE, tarfile.CHRTYPE)
ARCHIVES: dict[str, tuple[bytes, str]] = {
    "without a name": (zipped({"x": b"hi"}).replace(b"x", b"\0"), "the member '' is not expected"),
    **{f"a link of kind {kind!r}": (tarred({"train.txt": b""}, kind=kind), "is a link or a device") for kind in LINKS},
    "an understated size": (TRAIN.replace((500_000).to_bytes(4, "little"), (39).to_bytes(4, "little")), "is damaged"),
    "a packed bomb": (gzip.compress(tarred({"train.txt": bytes(2_000_000)})), "unpacks to more than 1,048,649 bytes"),
    "an encrypted zip": (_changed(TRAIN, b"\x01", local=6, central=8), "can read .*encrypted.*|has 500,000 bytes"),
    "an unknown packing": (
        _changed(zipped({"t": b"a"}), b"\x63", local=8, central=10),
        r"can read \(That compression method",
    ),
    "a cut zip": (TRAIN[:-30], "is damaged, or not an archive"),
    "an empty zip": (zipped({}), "tiny still lacks"),
    "an absolute name with escapes": (zipped({"/\x1b[2Jx": b"a"}), r"the member '/\\x1b\[2Jx' is not expected"),
    "a packed text": (gzip.compress(b"a text, no tar"), "is damaged, or not an archive"),
    "a packed tar cut short": (gzip.compress(tarred({"train.txt": b"a b"}))[:-12], "is damaged, or not an archive"),
    "an HTML page": (zipped({"train.txt": b"<html>"}), r"bad: the member 'train.txt' is an HTML page"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_is_refused(name: str, tiny: PinnedCorpus, write: Write) -> None:
    data, sentence = ARCHIVES[name]
    with pytest.raises(CorpusError, match=sentence):
        get_tiny(write("bad", data))


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
def test_a_member_too_big_is_refused_unread(
    tiny: PinnedCorpus, write: Write, monkeypatch: pytest.MonkeyPatch, pack: Pack
) -> None:
    source = write("bomb", pack({"train.txt": bytes(500_000)}))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("the member was opened"))
    monkeypatch.setattr(tarfile.TarFile, "extractfile", lambda *_: pytest.fail("the member was opened"))
    with pytest.raises(CorpusError, match=r"'train.txt' has 500,000 bytes, and no file .* has more than 39;"):
        get_tiny(source)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\n\n<!DOCTYPE html>\n<p>Sign in", "is an HTML page, not data"),
        (b"<?xml version='1.0'?><HTML lang='en'>", "is an HTML page, not data"),
        (b"", r"is not the tiny\.train\.txt of tiny: .* e3b0c44298fc… with 0 bytes, expected .* with 39"),
        (bytes(2_000_000), "has 2,000,000 bytes, and all of this corpus has at most"),
    ],
)
def test_a_file_that_is_something_else(content: bytes, sentence: str, tiny: PinnedCorpus, write: Write) -> None:
    with pytest.raises(CorpusError, match=f"my.train.txt {sentence}"):
        get_tiny(write("my.train.txt", content))


BLOCK = 512
END = bytes(2 * BLOCK)
NEGATIVE = "has a negative size"


def _header(name: str, size: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return a tar header with the right checksum."""
    info = tarfile.TarInfo(name)
    info.type = kind
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _binary(size: int) -> bytes:
    """Return a size as GNU tar writes one that octal digits cannot hold."""
    return (256**12 + size).to_bytes(12, "big") if size < 0 else b"\x80" + size.to_bytes(11, "big")


def _extended(records: bytes) -> bytes:
    """Return an extended header (POSIX 1003.1-2001) with its records."""
    padded = records.ljust(-(-len(records) // BLOCK) * BLOCK, b"\0")
    return _header("pax", b"%011o\0" % len(records), tarfile.XHDTYPE) + padded


EMPTY = _header("README", bytes(12)) + END
ENDLESS: dict[str, tuple[bytes, str]] = {
    "a long name": (_header("name", _binary(-BLOCK), tarfile.GNUTYPE_LONGNAME) + END, NEGATIVE),
    "a size in an extended header": (_extended(b"14 size=-1536\n") + EMPTY, NEGATIVE),
    "an extended header of digits alone": (_extended(b"1" * (1 << 20)) + EMPTY, "has a header of 1,048,576 bytes"),
    "long names without end": (
        _header("name", b"%011o\0" % BLOCK, tarfile.GNUTYPE_LONGNAME) * 6000,
        "is damaged, or not",
    ),
    "extended headers without end": (_extended(b"9 a=bcde\n") * 5000 + END, "is damaged, or not an archive"),
    "a size that no file has": (_header("README", b"\x80" + b"\x7f" * 11) + END, "is damaged, or not an archive"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_archive_made_to_keep_its_reader_busy(name: str) -> None:
    data, sentence = ENDLESS[name]
    with pytest.raises(CorpusError, match=rf"^a\.tar.*{sentence}"):
        list(read_members(data, where="a.tar", largest=1 << 20, total=1 << 24))


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_extended_headers_are_read(form: int) -> None:
    file, name = io.BytesIO(), f"{'long/' * 60}ü.txt"
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        info = tarfile.TarInfo(name)
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    assert [*read_members(file.getvalue(), where="a.tar", largest=9, total=1 << 20)] == [(name, b"abc")]


def test_the_pinned_addresses_of_what_is_missing(served: PinnedCorpus, serve: Serve, cache: Path) -> None:
    """After a broken connection the same call fetches the rest."""
    calls: list[tuple[str, int, int]] = []
    serve("/tiny.test.txt", TEXTS["test"][:10], length=len(TEXTS["test"]))
    with pytest.raises(CorpusError, match=r"tiny\.test\.txt ended after 10 of 23 bytes: run the same command"):
        get("tiny", progress=lambda *call: calls.append(call))
    assert calls[:2] == [(f"tiny.{split}.txt", len(TEXTS[split]), len(TEXTS[split])) for split in ("train", "valid")]
    assert sorted(file.name for file in cache.rglob("*.txt")) == ["train.txt", "valid.txt"]
    serve("/tiny.test.txt", TEXTS["test"])
    get("tiny", progress=lambda *call: calls.append(call))
    assert calls[3:] == [("tiny.test.txt", 23, 23)]
    assert load("tiny").vocabulary.tokens == ("a", "rose", "is", "<eos>", "<unk>", "?")


def test_other_addresses_may_give_archives_and_files(tiny: PinnedCorpus, serve: Serve) -> None:
    data = zipped({"a": TEXTS["train"], "b": TEXTS["valid"]})
    totals: set[int] = set()
    urls = [serve("/two.zip?raw=true", data, length=None), serve("/test", TEXTS["test"])]
    get("tiny", urls=urls, progress=lambda _name, _done, total: totals.add(total))
    assert load("tiny").split("test").size == 9
    assert totals == {0, len(TEXTS["test"])}


def test_an_answer_that_is_too_long_is_cut_off(tiny: PinnedCorpus, serve: Serve, cache: Path) -> None:
    """Also where the server does not say how long it is."""
    done: list[int] = []
    url = serve("/endless", bytes(9_000_000), length=None)
    with pytest.raises(CorpusError, match=f"^{url} sends more than 1,048,649 bytes"):
        get("tiny", urls=[url], progress=lambda _name, size, _total: done.append(size))
    assert max(done) <= 1_048_649
    assert not cache.exists()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("file:///etc/passwd", "is not a web address: it must begin with https:// or http://"),
        ("http://", "could not be downloaded"),
        ("http://[::1", "could not be downloaded"),
        ("http://127.0.0.1:port/", "could not be downloaded"),
        ("http://127.0.0.1/a b", "could not be downloaded"),
        ("http://127.0.0.1:9/nothing", r"could not be downloaded .*refused.*: check the network, .* --from PATH$"),
    ],
)
def test_an_address_that_gives_nothing(url: str, sentence: str, tiny: PinnedCorpus) -> None:
    with pytest.raises(CorpusError, match=sentence):
        get("tiny", urls=[url])
