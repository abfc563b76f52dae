"""A folder of the user's own, and what every corpus made of three texts has in common."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from softmax_bottleneck.corpora import Vocabulary, load
from softmax_bottleneck.errors import CorpusError

Write = Callable[[str, bytes], Path]
CONTENTS = {"train": "a b\n\nb a b\n", "valid": "c\u2028a", "test": "d\r\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, text in CONTENTS.items():
        (tmp_path / f"{split}.txt").write_bytes(text.encode())
    return tmp_path


def test_each_line_ends_with_eos_and_the_vocabulary_spans_the_splits(folder: Path) -> None:
    corpus = load(folder)
    assert corpus.vocabulary.tokens == ("a", "b", "<eos>", "c", "d")
    decoded = {split: " ".join(corpus.vocabulary.decode(ids)) for split, ids in corpus.splits.items()}
    assert decoded == {"train": "a b <eos> <eos> b a b <eos>", "valid": "c a <eos>", "test": "d <eos>"}
    assert all(ids.dtype == np.int64 and ids.ndim == 1 for ids in corpus.splits.values())


def test_its_name_finds_it_again_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    corpus = load(folder.name)
    monkeypatch.chdir("/")
    assert load(corpus.name).sha256 == corpus.sha256


def test_sha256_notices_a_changed_byte_and_a_moved_line(folder: Path) -> None:
    before = load(folder)
    (folder / "test.txt").write_bytes(b"d \n")
    changed = load(folder)
    assert np.array_equal(changed.split("test"), before.split("test"))
    assert changed.sha256 != before.sha256
    (folder / "train.txt").write_bytes(b"a b\n")
    (folder / "valid.txt").write_bytes(b"\nb a b\nc\xe2\x80\xa8a")
    assert load(folder).sha256 != changed.sha256


def test_a_byte_order_mark_is_no_token(folder: Path) -> None:
    (folder / "valid.txt").write_bytes(b"\xef\xbb\xbfa\n")
    assert load(folder).vocabulary.tokens == ("a", "b", "<eos>", "d")


def test_a_given_vocabulary_encodes_the_text(folder: Path) -> None:
    vocabulary = Vocabulary(("d", "c", "b", "a", "<eos>"))
    corpus = load(folder, vocabulary=vocabulary)
    assert corpus.vocabulary is vocabulary
    assert corpus.split("valid").tolist() == [1, 3, 4]


def test_an_unknown_split(folder: Path) -> None:
    with pytest.raises(CorpusError, match="has no split 'dev': choose one of train, valid, test"):
        load(folder).split("dev")


def test_a_token_outside_the_vocabulary_names_file_and_line(folder: Path) -> None:
    (folder / "train.txt").write_bytes(b"a\n\na new\n")
    vocabulary = Vocabulary(("a", "c", "d", "<unk>", "<eos>"))
    with pytest.raises(CorpusError, match=r"train\.txt, line 3: the token 'new' .*<unk> in its place"):
        load(folder, vocabulary=vocabulary)


def test_a_missing_file(folder: Path) -> None:
    (folder / "valid.txt").unlink()
    with pytest.raises(CorpusError, match=r"cannot read .*valid\.txt: No such .* train\.txt, valid\.txt, test\.txt"):
        load(folder)


def test_a_folder_in_a_file_s_place(folder: Path) -> None:
    (folder / "valid.txt").unlink()
    (folder / "valid.txt").mkdir()
    with pytest.raises(CorpusError, match=r"cannot read .*valid\.txt: Is a directory"):
        load(folder)


@pytest.mark.parametrize("nothing", [b"", b"\n \n\n", b"\xef\xbb\xbf"])
def test_an_empty_file(folder: Path, nothing: bytes) -> None:
    (folder / "test.txt").write_bytes(nothing)
    with pytest.raises(CorpusError, match=r"test\.txt is empty"):
        load(folder)


@pytest.mark.parametrize(
    ("data", "line"),
    [(b"a\nb\ncaf\xe9\n", 3), ("a\n".encode("utf-16"), 1), (b"\xef\xbb\xbf\n\n\xff", 3), (b"a\n\xe2\x80", 2)],
)
def test_a_file_that_is_not_utf8_names_the_line(folder: Path, data: bytes, line: int) -> None:
    (folder / "train.txt").write_bytes(data)
    with pytest.raises(CorpusError, match=rf"train\.txt, line {line}: the byte 0x\w\w is not UTF-8"):
        load(folder)


@pytest.mark.parametrize("name", ["wikitext-3", "/no/such/folder", Path("ptb")])
def test_an_unknown_corpus(name: str | Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    known = (
        r"python-docs, ptb, wikitext-2, text8, one-billion, switchboard, "
        r"or a folder that holds train\.txt, valid\.txt and test\.txt(; did you mean '[\w-]+'\?)?"
    )
    with pytest.raises(CorpusError, match=f"^'{name}' is not a corpus: choose one of {known}$"):
        load(name)


def test_a_file_is_not_a_corpus(write: Write) -> None:
    with pytest.raises(CorpusError, match="is a file, not a corpus"):
        load(write("train.txt", b"a\n"))


def test_corpora_load_without_torch() -> None:
    code = "import sys, softmax_bottleneck.corpora; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
