"""Taking a corpus from folders, archives and files, and refusing all that is not it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softmax_bottleneck.corpora import PinnedCorpus, get, load
from softmax_bottleneck.errors import CorpusError

Texts = Mapping[str, bytes]
Write = Callable[[str, bytes], Path]
Pack = Callable[[Mapping[str, bytes]], bytes]
JUNK = {
    "__MACOSX/._tiny.train.txt": b"\0",
    "tiny/.DS_Store": b"\0",
    "tiny/README": b"hi",
    "LICENSE.txt": b"mine",
}


def zipped(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def tarred(members: Mapping[str, bytes], *, kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name.endswith("/") else kind
            info.size, info.linkname = len(data), "/etc/passwd"
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def named(texts: Texts, pattern: str = "tiny.{}.txt") -> dict[str, bytes]:
    return {pattern.format(split): text for split, text in texts.items()}


def get_tiny(tmp_path: Path, *sources: Path) -> Path:
    return get("tiny", sources=sources, cache=tmp_path / "cache")


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
@pytest.mark.parametrize("pattern", ["tiny.{}.txt", "deep/er/{}.txt", "part-{}"])
def test_an_archive_with_any_names_and_junk(
    tiny: PinnedCorpus, texts: Texts, write: Write, tmp_path: Path, pack: Pack, pattern: str
) -> None:
    folder = get_tiny(tmp_path, write("archive", pack({**JUNK, **named(texts, pattern)})))
    assert folder == tmp_path / "cache" / "corpora" / "tiny"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == named(texts, "{}.txt")
    corpus = load("tiny", cache=tmp_path / "cache")
    assert {split: len(ids) for split, ids in corpus.splits.items()} == tiny.tokens
    assert len(corpus.vocabulary) == tiny.vocabulary_size


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_tar(
    tiny: PinnedCorpus, texts: Texts, write: Write, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    get_tiny(tmp_path, write("tiny.tar.packed", pack(tarred(named(texts)))))
    assert load("tiny", cache=tmp_path / "cache").name == "tiny"


def test_a_folder_among_other_files(tiny: PinnedCorpus, texts: Texts, write: Write, tmp_path: Path) -> None:
    for name, data in {
        "train.txt": texts["train"],
        "tiny.valid.txt": texts["valid"],
        "odd": texts["test"],
    }.items():
        write(f"mine/{name}", data)
    write("mine/notes.txt", b"not looked at")
    get_tiny(tmp_path, tmp_path / "mine")


def test_parts_from_several_sources(tiny: PinnedCorpus, texts: Texts, write: Write, tmp_path: Path) -> None:
    archive = write("two.zip", zipped({"train.txt": texts["train"], "valid.txt": texts["valid"]}))
    with pytest.raises(CorpusError, match=r"tiny still lacks tiny\.test\.txt \(23 bytes\): the other files are kept"):
        get_tiny(tmp_path, archive)
    get_tiny(tmp_path, write("rest.txt", texts["test"]))
    assert load("tiny", cache=tmp_path / "cache").split("test").size == 9


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("notes.txt", "is not expected: tiny is made of tiny.train.txt"),
        ("README.exe", "is not expected"),
        ("/etc/cron.d/x", "has an absolute path"),
        ("C:/x", "has an absolute path"),
        ("\\x", "has an absolute path"),
        ("../train.txt", "has an absolute path or one with '..'"),
        ("__MACOSX/../../README", "has an absolute path or one with '..'"),
        ("a\\..\\b", "has an absolute path or one with '..'"),
        ("train.txt", "is not the tiny.train.txt of tiny: SHA-256 "),
    ],
)
def test_a_member_that_does_not_belong(
    tiny: PinnedCorpus,
    texts: Texts,
    write: Write,
    tmp_path: Path,
    pack: Pack,
    name: str,
    sentence: str,
) -> None:
    source = write("bad.archive", pack({**named(texts, "x/{}"), name: b"something else"}))
    with pytest.raises(CorpusError) as caught:
        get_tiny(tmp_path, source)
    assert str(caught.value).startswith(f"{source}: the member {name!r} {sentence}")
    assert not list(tmp_path.rglob("cache/**/*.txt"))


def test_a_member_without_a_name(tiny: PinnedCorpus, write: Write, tmp_path: Path) -> None:
    data = zipped({"x": b"hi"}).replace(b"x", b"\0")  # zipfile cuts a name at its first NUL
    with pytest.raises(CorpusError, match=r"the member '' is not expected"):
        get_tiny(tmp_path, write("bad.zip", data))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar(tiny: PinnedCorpus, write: Write, tmp_path: Path, kind: bytes) -> None:
    source = write("bad.tar", tarred({"train.txt": b""}, kind=kind))
    with pytest.raises(CorpusError, match=r"the member 'train.txt' is a link, a device or"):
        get_tiny(tmp_path, source)


def test_a_link_in_a_zip(tiny: PinnedCorpus, write: Write, tmp_path: Path) -> None:
    info = zipfile.ZipInfo("__MACOSX/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(CorpusError, match=r"the member '__MACOSX/link' is a link, a device or"):
        get_tiny(tmp_path, write("bad.zip", file.getvalue()))


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
def test_a_member_too_big_is_refused_unread(
    tiny: PinnedCorpus,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pack: Pack,
) -> None:
    source = write("bomb", pack({"train.txt": bytes(500_000)}))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("the member was opened"))
    monkeypatch.setattr(tarfile.TarFile, "extractfile", lambda *_: pytest.fail("the member was opened"))
    with pytest.raises(CorpusError, match=r"'train.txt' has 500,000 bytes, and no file .* has more than 39;"):
        get_tiny(tmp_path, source)


def test_a_zip_that_understates_its_member(tiny: PinnedCorpus, texts: Texts, write: Write, tmp_path: Path) -> None:
    data = zipped({"train.txt": bytes(500_000)})
    lie = data.replace((500_000).to_bytes(4, "little"), len(texts["train"]).to_bytes(4, "little"))
    assert lie != data
    with pytest.raises(CorpusError, match="is damaged"):
        get_tiny(tmp_path, write("lie.zip", lie))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_tar_that_unpacks_to_too_much(
    tiny: PinnedCorpus, write: Write, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(CorpusError, match="unpacks to more than 1,048,649 bytes"):
        get_tiny(tmp_path, write("bomb.tar.gz", pack(tarred({"train.txt": bytes(2_000_000)}))))


def test_an_encrypted_zip(tiny: PinnedCorpus, texts: Texts, write: Write, tmp_path: Path) -> None:
    data = bytearray(zipped({"train.txt": texts["train"]}))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # APPNOTE.TXT, 4.3.7 and 4.3.12
        data[data.index(header) + flags] |= 1
    with pytest.raises(CorpusError, match=r"cannot read .*train\.txt.* is encrypted.*: unpack it"):
        get_tiny(tmp_path, write("secret.zip", bytes(data)))


def test_a_zip_packed_in_an_unknown_way(tiny: PinnedCorpus, texts: Texts, write: Write, tmp_path: Path) -> None:
    data = bytearray(zipped({"train.txt": texts["train"]}))
    for header, method in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(header) + method] = 99
    with pytest.raises(CorpusError, match="packed in a way Python cannot read"):
        get_tiny(tmp_path, write("odd.zip", bytes(data)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda texts: zipped(named(texts))[:-30],
        lambda texts: gzip.compress(tarred(named(texts)))[:-30],
        lambda texts: gzip.compress(b"a text, no tar"),
        lambda texts: tarred(named(texts))[:520],
    ],
    ids=["cut zip", "cut tar.gz", "packed text", "cut tar"],
)
def test_a_damaged_archive(
    tiny: PinnedCorpus, texts: Texts, write: Write, tmp_path: Path, damage: Callable[[Texts], bytes]
) -> None:
    with pytest.raises(CorpusError, match=r"cut\.archive is damaged or not an archive"):
        get_tiny(tmp_path, write("cut.archive", damage(texts)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), pack=st.sampled_from([zipped, tarred, lambda m: gzip.compress(tarred(m), mtime=0)]))
def test_a_changed_byte_is_harmless_or_refused(
    tiny: PinnedCorpus,
    texts: Texts,
    tmp_path: Path,
    data: st.DataObject,
    pack: Pack,
) -> None:
    archive = bytearray(pack(named(texts)))
    archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    source = tmp_path / "changed"
    source.write_bytes(archive)
    for file in (tmp_path / "cache" / "corpora" / "tiny").glob("*"):
        file.unlink()
    try:
        folder = get_tiny(tmp_path, source)
    except CorpusError:
        return
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == named(texts, "{}.txt")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\n\n<!DOCTYPE html>\n<p>Sign in", "is an HTML page, not data"),
        (b"<?xml version='1.0'?><HTML lang='en'>", "is an HTML page, not data"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer, not data"),
        (
            b"",
            r"is not the tiny\.train\.txt of tiny: .* e3b0c44298fc… with 0 bytes, expected .* with 39;",
        ),
        (b" a rose\n", r"is not the tiny\.train\.txt of tiny: SHA-256 \w{12}… with 8 bytes"),
    ],
)
def test_a_file_that_is_something_else(
    tiny: PinnedCorpus, write: Write, tmp_path: Path, content: bytes, sentence: str
) -> None:
    with pytest.raises(CorpusError, match=r"my\.train\.txt " + sentence):
        get_tiny(tmp_path, write("my.train.txt", content))


def test_an_html_page_in_an_archive(tiny: PinnedCorpus, write: Write, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"my\.zip: the member 'train.txt' is an HTML page"):
        get_tiny(tmp_path, write("my.zip", zipped({"train.txt": b"<html>"})))


def test_a_file_of_no_telling_name(tiny: PinnedCorpus, write: Write, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"thesis\.pdf is not expected: tiny is made of tiny\.train\.txt"):
        get_tiny(tmp_path, write("thesis.pdf", b"%PDF"))


def test_a_file_bigger_than_the_whole_corpus(tiny: PinnedCorpus, write: Write, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has 2,000,000 bytes, and all of this corpus has at most"):
        get_tiny(tmp_path, write("film.mp4", bytes(2_000_000)))


def test_a_source_that_is_not_there(tiny: PinnedCorpus, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"there is no file or folder .*nowhere\.zip"):
        get_tiny(tmp_path, tmp_path / "nowhere.zip")
