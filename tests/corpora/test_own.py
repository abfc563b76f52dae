"""A text of one's own for a run and an n-gram model: a file, texts and ids mean the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import softmax_bottleneck as sb
from softmax_bottleneck.errors import CorpusError

TEXT = "the quiet boat sees a river .\nthe warm house likes a stone ."
FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN, CORPUS = FIXTURES / "mos", FIXTURES / "corpus"


@pytest.mark.parametrize("source", [RUN, f"kn2:{CORPUS}"])
def test_all_forms_of_a_text_mean_the_same(source: Any, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text(TEXT, encoding="utf-8")
    words = sb.corpora.load(CORPUS).vocabulary
    ids = words.encode([*TEXT.replace("\n", " <eos> ").split(), "<eos>"])
    forms = [
        tmp_path / "own.txt",
        str(tmp_path / "own.txt"),
        TEXT,
        TEXT.split("\n"),
        ids,
        ids.tolist(),
        torch.from_numpy(ids)[None],
    ]
    found = {sb.kld(source, data=form).kld for form in forms}
    assert len(found) == 1
    assert found != {sb.kld(source, data=TEXT + " the boat").kld}
    assert sb.open(source, data=ids).targets.tolist() == ids[1:].tolist()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("the boat sees a zebra", "the text, line 1: the token 'zebra' is not among the 28 of the vocabulary"),
        (["the boat", "a zebra " * 1000], "the text, line 2: the token 'zebra' is not among"),
        (np.array([3, 99]), "the id 99 is not a token"),
        (np.ones((2, 3), int), r"data must be a corpus, a text file, texts or token ids \(N,\), not int64 \(2, 3\)"),
        ({"input_ids": [1, 2]}, "data must be a corpus, a text file, texts or token ids"),
        ("d.jsonl", "d.jsonl is a file of JSON Lines, which only Hugging Face models read: give a .txt file"),
        ("boats" * 999, "is not a corpus: choose one of"),
    ],
)
def test_what_is_not_a_text_of_the_model(data: Any, sentence: str) -> None:
    with pytest.raises(CorpusError, match=sentence):
        sb.rank(RUN, data=data)
