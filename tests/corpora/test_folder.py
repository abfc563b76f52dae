"""A folder of the user's own, what every corpus made of three texts has in common, and tokens as numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck.corpora import UNK, Vocabulary, load
from softmax_bottleneck.errors import CorpusError

CONTENTS = {"train": "\ufeffa b\n\nb a b\n", "valid": "c\u2028a", "test": "d\r\n"}


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
    with pytest.raises(CorpusError, match="has no split 'dev': choose one of train, valid, test"):
        corpus.split("dev")


def test_a_line_that_ends_with_eos_has_one(folder: Path) -> None:
    plain = load(folder)
    for split, text in CONTENTS.items():
        (folder / f"{split}.txt").write_text(text.rstrip("\n").replace("\n", " <eos>\n") + " <eos>\n", encoding="utf-8")
    again = load(folder)
    assert [again.splits[split].tolist() for split in again.splits] == [
        plain.splits[split].tolist() for split in plain.splits
    ]


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


def test_a_given_vocabulary_encodes_the_text(folder: Path) -> None:
    vocabulary = Vocabulary(("d", "c", "b", "a", "<eos>"))
    corpus = load(folder, vocabulary=vocabulary)
    assert corpus.vocabulary is vocabulary
    assert corpus.split("valid").tolist() == [1, 3, 4]
    (folder / "train.txt").write_bytes(b"a\n\na new\n")
    with pytest.raises(CorpusError, match=r"train\.txt, line 3: the token 'new' .*<unk> in its place"):
        load(folder, vocabulary=Vocabulary(("a", "c", "d", "<unk>", "<eos>")))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xef\xbb\xbf", r"valid\.txt is empty"),
        (b"  \n\n \n", r"valid\.txt is empty"),
        (b"a\nb\ncaf\xe9\n", r"valid\.txt, line 3: the byte 0xe9 is not UTF-8"),
        (b"a\nb\0\n", r"valid\.txt, line 2 holds a NUL byte"),
        (None, r"cannot read .*valid\.txt: No such .* train\.txt, valid\.txt, test\.txt"),
    ],
)
def test_a_file_that_is_not_a_text(data: bytes | None, said: str, folder: Path) -> None:
    (folder / "valid.txt").unlink()
    if data is not None:
        (folder / "valid.txt").write_bytes(data)
    with pytest.raises(CorpusError, match=said):
        load(folder)


@pytest.mark.parametrize("name", ["wikitext-3", "/no/such/folder", Path("ptb")])
def test_an_unknown_corpus(name: str | Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names = "python-docs, ptb, wikitext-2, text8, one-billion, switchboard"
    text = rf"{names}, or a folder that holds train\.txt, valid\.txt and test\.txt(; did you mean '[\w-]+'\?)?"
    with pytest.raises(CorpusError, match=f"^'{name}' is not a corpus: choose one of {text}$"):
        load(name)
    (tmp_path / "train.txt").write_bytes(b"a\n")
    with pytest.raises(CorpusError, match="is a file, not a corpus"):
        load(tmp_path / "train.txt")


def test_corpora_load_without_torch() -> None:
    code = "import sys, softmax_bottleneck.corpora; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@given(st.lists(st.text(max_size=5), max_size=40))
def test_decoding_undoes_encoding(tokens: list[str]) -> None:
    """Ids are given in order of first appearance."""
    vocabulary = Vocabulary.of(tokens)
    ids = vocabulary.encode(tokens)
    assert (ids.dtype, ids.shape) == (np.int64, (len(tokens),))
    assert vocabulary.decode(ids) == tokens
    assert sorted(set(tokens), key=tokens.index) == list(vocabulary.tokens)
    assert [vocabulary.index[token] for token in vocabulary.tokens] == list(range(len(vocabulary)))


def test_what_a_vocabulary_refuses() -> None:
    """An unknown token is refused even where UNK exists."""
    for tokens, stand_in in ((["a", UNK], UNK), (["a"], "a known token")):
        with pytest.raises(CorpusError, match=rf"^my\.txt, line 3: the token 'b' .* write {stand_in} in its place$"):
            Vocabulary.of(tokens).encode(["a", "b"], "my.txt, line 3")
    for outside in (-1, 2):
        with pytest.raises(CorpusError, match=f"the id {outside} is not a token: the vocabulary's ids are 0 to 1"):
            Vocabulary(("a", "b")).decode(np.array([0, outside]))
    with pytest.raises(CorpusError, match="holds the token 'a' twice"):
        Vocabulary(("a", "b", "a"))
