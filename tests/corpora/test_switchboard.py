"""Switchboard's conversations from an archive or a folder, and everything that is wrong with one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from softmax_bottleneck import corpora
from softmax_bottleneck.corpora import switchboard
from softmax_bottleneck.errors import CorpusError

from .conftest import Write, zipped

FILES = {
    "swda_data/train/2005.txt": "A|Okay.|fo\nB|Uh-huh, I don't KNOW.|b\nA|Okay, okay.|aa\n",
    "swda_data/train/2006.txt": "B|I know.|sd\nA|Okay.|aa\n",
    "swda_data/val/3000.txt": "A|I know Kansas.|sd\nB|Okay?|qy\n",
    "swda_data/test/4000.txt": "A|Kansas|sd\nB|Okay.|aa\n",
}


def _get(source: Path) -> corpora.Corpus:
    corpora.get("switchboard", sources=[source])
    return corpora.load("switchboard")


def _text(corpus: corpora.Corpus, split: str) -> str:
    return " ".join(corpus.vocabulary.decode(corpus.split(split)))


def test_an_utterance_is_a_line_and_a_blank_line_ends_a_conversation(write: Write) -> None:
    junk = {"LICENSE": "GPL", "__MACOSX/swda_data/train/._2005.txt": "\0"}
    corpus = _get(write("swda.zip", zipped(FILES | junk)))
    assert _text(corpus, "train") == (
        "<a> okay . <eos> <b> uh - huh , i don ' t know . <eos> <a> okay , okay . <eos> <eos> "
        "<b> i know . <eos> <a> okay . <eos> <eos>"
    )
    assert _text(corpus, "valid") == "<a> i know <unk> . <eos> <b> okay <unk> <eos> <eos>"
    assert _text(corpus, "test") == "<a> <unk> <eos> <b> okay . <eos> <eos>"
    # Most frequent words of the training conversations first, ties in the order of the alphabet.
    assert corpus.vocabulary.tokens[:8] == ("<eos>", "<unk>", "<a>", "<b>", ".", "okay", ",", "i")


def test_a_folder_holds_the_same(write: Write, tmp_path: Path) -> None:
    for name, text in FILES.items():
        write(name, text.encode())
    os.mkfifo(tmp_path / "swda_data" / "train" / "pipe.txt")  # which would never end
    texts = []
    for source in (write("swda.zip", zipped(FILES)), tmp_path / "swda_data"):
        corpus = _get(source)
        texts.append((corpus.sha256, *(_text(corpus, split) for split in corpora.SPLITS)))
        corpora.remove("switchboard")
    assert texts[0] == texts[1]


def test_a_line_has_forty_tokens_and_the_vocabulary_ten_thousand(write: Write) -> None:
    words = [f"x{number}" for number in range(12_000)]
    lines = "".join(f"{'AB'[at % 2]}|{' '.join(words[60 * at : 60 * at + 60])}|sd\n" for at in range(200))
    twice = "".join(f"{'AB'[at % 2]}|{' '.join(words[38 * at : 38 * at + 38])}|sd\n" for at in range(300))
    files = FILES | {"swda_data/train/2007.txt": lines, "swda_data/train/2008.txt": twice}
    corpus = _get(write("swda.zip", zipped(files)))
    assert len(corpus.vocabulary) == switchboard.VOCABULARY_SIZE
    rows = [row.strip() for row in _text(corpus, "train").split("<eos>")]
    assert max(len(row.split()) for row in rows) + 1 == switchboard.LONGEST == 40
    assert rows[7].split()[:3] == ["<a>", "x0", "x1"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("train/1.txt", "", "is empty: give a file with text"),
        ("train/1.txt", "A|Hi.|fp\nA|Hello.|fp\n", "has a single speaker, A: a conversation takes both"),
        ("train/1.txt", "A|Hi.|fp\nC|Hello.|fp\n", "line 2 reads 'C|Hello.|fp', not speaker|text|act with"),
        ("train/1.txt", "A|Hi.|fp\nHello\n", "line 2 reads 'Hello', not speaker|text|act with the speaker A"),
        ("train/1.txt", "A|Hi.|fp\nB| |x\n", "line 2 reads 'B| |x', not speaker|text|act with"),
        ("val/3000.txt", None, "has no conversations in a folder 'val': switchboard is made of the folders train, val"),
    ],
)
def test_one_sentence_for_what_is_bad(name: str, text: str | None, said: str, write: Write) -> None:
    files = {**FILES, f"swda_data/{name}": text}
    with pytest.raises(CorpusError, match=re.escape(said)):
        _get(write("swda.zip", zipped({name: text for name, text in files.items() if text is not None})))
    with pytest.raises(CorpusError, match="not on this machine yet: run `bottleneck data get switchboard`"):
        corpora.load("switchboard")
    with pytest.raises(CorpusError, match="is not downloaded: its text derives from LDC97S62"):
        corpora.get("switchboard")
