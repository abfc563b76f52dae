"""A text as pairs of a line and the lines before it, against pairs that are made of strings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from softmax_bottleneck import corpora
from softmax_bottleneck.corpora import Corpus, Vocabulary
from softmax_bottleneck.errors import CorpusError
from softmax_bottleneck.language_models.reading import PADDING, Batch, Pairs, stream

VOCABULARY = Vocabulary(("<eos>", "<unk>", "<a>", "<b>", *(f"w{number}" for number in range(10))))
Pair = tuple[list[list[str]], list[str]]


def _corpus(text: str) -> Corpus:
    ids = VOCABULARY.encode(text.replace("/", "<eos>").split())
    return Corpus("talk", VOCABULARY, {"test": ids}, "")


def _strings(batch: Batch, decode: Vocabulary) -> list[Pair]:
    """Read a batch column by column, without its padding."""
    pairs = []
    for column in range(batch.inputs.shape[1]):
        lines = [line[line >= 0] for line in batch.contexts[:, :, column]]
        targets = batch.targets[:, column]
        targets = targets[targets != PADDING]
        inputs = batch.inputs[: len(targets), column]
        assert inputs[1:].tolist() == targets[:-1].tolist()
        words = decode.decode(torch.cat([inputs, targets[-1:]]).numpy())
        pairs.append(([decode.decode(line.numpy()) for line in lines if len(line)], words))
    return pairs


def _expected(text: str, lines: int) -> list[Pair]:
    """The pairs of a text whose lines end with "/" and whose paragraphs end with "/ /"."""
    found = []
    for paragraph in text.split("/ /"):
        rows = [[*row.split(), "<eos>"] for row in paragraph.split("/") if row.strip()]
        for at in range(1, len(rows)):
            if set(rows[at][1:-1]) - {"<unk>"}:
                found.append((rows[max(0, at - lines) : at], rows[at]))
    return found


@pytest.mark.parametrize("lines", [1, 3, 10])
def test_every_line_but_the_first_answers_those_before_it(lines: int) -> None:
    text = (
        "<a> w1 w2 / <b> w3 / <a> <unk> / <b> w4 <unk> w5 / <b> / <a> w6 / / <b> w7 / / "
        "<a> w8 / <b> w9 w9 w9 / <a> w1 / / / <a> w2 / <b> w3 / /"
    )
    corpus = _corpus(text)
    pairs = Pairs(corpus, "test", lines=lines, at_once=2)
    expected = _expected(text, lines)
    assert len(pairs) == len(expected) == 6
    found = [pair for number in range(len(pairs.edges) - 1) for pair in _strings(pairs.batch(number), VOCABULARY)]
    assert found == expected
    # The rows are the predicted tokens, pair after pair, in the order of the text.
    rows = [token for _, line in expected for token in line[1:]]
    assert VOCABULARY.decode(pairs.targets) == rows
    assert (np.diff(pairs.places) > 0).all()
    for number, (first, stop) in enumerate(zip(pairs.edges, pairs.edges[1:], strict=False)):
        batch = pairs.batch(number)
        assert batch.targets.T[batch.targets.T != PADDING].tolist() == pairs.targets[first:stop].tolist()
        assert batch.scored == stop - first
    assert pairs.references == [VOCABULARY.encode(line[1:-1]).tolist() for _, line in expected]


def test_pairs_in_any_order_are_those_of_the_text(talk_folder: Path) -> None:
    corpus = corpora.load(talk_folder)
    pairs = Pairs(corpus, "train", lines=4, at_once=64)
    order = np.random.default_rng(0).permutation(len(pairs))
    alone = [_strings(pairs.of([number]), corpus.vocabulary)[0] for number in order]
    assert _strings(pairs.of(order), corpus.vocabulary) == alone
    half = pairs.of(order).columns(slice(3, 9)).to(torch.device("cpu"))
    assert _strings(half, corpus.vocabulary) == alone[3:9]


def test_a_stream_predicts_every_token_but_the_first() -> None:
    ids = np.arange(10)
    text = stream(ids, length=4)
    assert text.targets.tolist() == list(range(1, 10))
    batches = [text.batch(number) for number in range(len(text.edges) - 1)]
    assert [len(batch.inputs) for batch in batches] == [4, 4, 1]
    assert torch.cat([batch.inputs for batch in batches]).ravel().tolist() == list(range(9))
    assert torch.cat([batch.targets for batch in batches]).ravel().tolist() == list(range(1, 10))
    assert sum(batch.scored for batch in batches) == text.edges[-1] == 9


@pytest.mark.parametrize("text", ["<a> w1 /", "<a> w1 / / <b> w2 / /", "<a> w1 / <b> <unk> <unk> /", "<a> w1 / <b> /"])
def test_a_text_without_a_pair_is_refused(text: str) -> None:
    with pytest.raises(CorpusError, match="the test split of talk has no pair: a line of at least one known word"):
        Pairs(_corpus(text), "test", lines=3, at_once=2)


def test_a_text_without_lines_is_refused() -> None:
    letters = Corpus("text8", Vocabulary(tuple("ab")), {"test": np.array([0, 1, 0])}, "")
    with pytest.raises(CorpusError, match="text8 has no lines"):
        Pairs(letters, "test", lines=3, at_once=2)
