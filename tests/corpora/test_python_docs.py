"""The built-in corpus."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import chain
from types import ModuleType

import pytest

from softmax_bottleneck.corpora import EOS, SPLITS, UNK, Corpus, Vocabulary, catalogue, load
from softmax_bottleneck.errors import CorpusError


def give_topics(monkeypatch: pytest.MonkeyPatch, topics: dict[str, str]) -> None:
    module = ModuleType("pydoc_data.topics")
    module.topics = topics  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", module)


def decoded(corpus: Corpus, split: str) -> str:
    return " ".join(corpus.vocabulary.decode(corpus.split(split)))


def test_this_python_s_text() -> None:
    corpus = load("python-docs")
    sizes = {split: len(corpus.split(split)) for split in SPLITS}
    total = sum(sizes.values())
    # 119,052 tokens of 2,649 types on CPython 3.11.7; the text grows a little with each version.
    assert 90_000 < total < 200_000
    assert 2_000 < len(corpus.vocabulary) < 5_000
    assert sizes["train"] / total == pytest.approx(0.8, abs=0.05)
    counts = Counter(chain.from_iterable(corpus.vocabulary.decode(corpus.split(split)) for split in SPLITS))
    assert {UNK, EOS} <= counts.keys()
    assert min(counts.values()) > 1
    assert all(token in (UNK, EOS) or token == token.lower() for token in counts)


def test_its_sha256_is_that_of_the_text_whatever_the_order_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydoc_data.topics import topics

    first = load("python-docs")
    give_topics(monkeypatch, dict(reversed(topics.items())))
    again = load("python-docs")
    assert (again.sha256, again.vocabulary) == (first.sha256, first.vocabulary)
    give_topics(monkeypatch, {**topics, "zzz": "And the end."})
    assert load("python-docs").sha256 != first.sha256
    with pytest.raises(CorpusError, match=r"python-docs of Python 3\.\S+, train, line 1: the token 'the' is not"):
        load("python-docs", vocabulary=Vocabulary((EOS, UNK)))


def test_blocks_of_ten_paragraphs_are_split_eight_one_one(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [f"n{number}" for number in range(250)]
    paragraphs = [f"{number} {number}." for number in numbers]
    give_topics(monkeypatch, {"a": "\n\n".join(paragraphs[:123]), "b": "\n \n\n".join(paragraphs[123:])})
    corpus = load("python-docs")
    held_out = {"valid": [*range(80, 90), *range(180, 190)], "test": [*range(90, 100), *range(190, 200)]}
    for split, places in held_out.items():
        assert decoded(corpus, split) == " ".join(f"n{n} n{n} . <eos>" for n in places)
    assert len(corpus.split("train")) == 4 * (250 - 40)


def test_sentences_words_and_rare_words(monkeypatch: pytest.MonkeyPatch) -> None:
    first = "The x: 3.11 is: rare.\nThe\nEND! <unk>?"
    give_topics(monkeypatch, {"x": first + "\n\nx 3 the end <>" * 200})  # enough for all three splits
    sentences = ["the x :", "3 . <unk> <unk> :", "<unk> .", "the end <unk>", "< <unk> > <unk>", "x 3 the end < >"]
    assert decoded(load("python-docs"), "train").startswith(" <eos> ".join(sentences) + " <eos> x 3")


def test_a_python_without_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(CorpusError, match=r"no pydoc_data\.topics.*install CPython's full standard library"):
        load("python-docs")
    info = catalogue()[0]
    assert (info.name, info.available, info.tokens, info.vocabulary_size) == ("python-docs", False, None, None)
