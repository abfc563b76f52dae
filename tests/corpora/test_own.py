"""A text of one's own for a run and an n-gram model: a file, texts and ids mean the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import softmax_bottleneck as sb
from softmax_bottleneck.errors import BottleneckError, SourceError

TEXT = "the quiet boat sees a river .\nthe warm house likes a stone ."
FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN, CORPUS = FIXTURES / "mos", FIXTURES / "corpus"


@pytest.mark.parametrize("source", [RUN, f"kn2:{CORPUS}"])
def test_all_forms_of_a_text_mean_the_same(source: Any, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text(TEXT, encoding="utf-8")
    records = [json.dumps({"text": line, "n": 1}) for line in TEXT.split("\n")]
    (tmp_path / "own.jsonl").write_text("\n".join(records), encoding="utf-8")
    words = sb.corpora.load(CORPUS).vocabulary
    ids = words.encode([*TEXT.replace("\n", " <eos> ").split(), "<eos>"])
    forms = [
        tmp_path / "own.txt",
        str(tmp_path / "own.txt"),
        tmp_path / "own.jsonl",
        f"{tmp_path / 'own.jsonl'}:text",
        TEXT,
        TEXT.split("\n"),
        ids,
        ids.tolist(),
        torch.from_numpy(ids)[None],
        {"input_ids": [ids]},
    ]
    found = {sb.kld(source, data=form).kld for form in forms}
    assert len(found) == 1
    assert found != {sb.kld(source, data=TEXT + " the boat").kld}
    assert sb.open(source, data=ids).targets.tolist() == ids[1:].tolist()


@pytest.mark.parametrize("source", [RUN, f"kn3:{CORPUS}"])
def test_each_row_of_ids_is_a_text_of_its_own(source: Any) -> None:
    rows = np.random.default_rng(0).integers(0, 28, (40, 7))
    opened = sb.open(source, data=rows)
    assert opened.shape == (240, 28)
    assert opened.targets.tolist() == rows[:, 1:].ravel().tolist()
    found = np.concatenate([block.log_probs for block in opened.blocks([range(5), range(5, 100), range(200, 240)])])
    alone = np.concatenate([block.log_probs for row in rows for block in sb.open(source, data=row).blocks()])
    np.testing.assert_allclose(found, np.delete(alone, range(100, 200), 0), rtol=0, atol=1e-5)
    texts = [*rows[:3], rows[3, :1], rows[4, :4]]
    uneven = np.concatenate([block.log_probs for block in sb.open(source, data=texts).blocks()])
    np.testing.assert_allclose(uneven, alone[[*range(18), *range(24, 27)]], rtol=0, atol=1e-5)
    if source == RUN:
        with pytest.raises(SourceError, match="dynamic evaluation scores one stream of tokens"):
            sb.perplexity(source, data=rows, how="dynamic")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("the boat sees a zebra", "the text, line 1: the token 'zebra' is not among the 28 of the vocabulary"),
        (["the boat", "a zebra " * 1000], "the text, line 2: the token 'zebra' is not among"),
        (np.array([3, 99]), "the id 99 is not a token"),
        (np.ones((2, 3)), "token ids of batch 0 of the data must be whole numbers that fit in int64, not float64"),
        ([[1], [2]], "has no context: it needs at least two tokens"),
        ("d.jsonl", "cannot read d.jsonl: No such file"),
        ("boats" * 999, "is not a corpus: choose one of"),
    ],
)
def test_what_is_not_a_text_of_the_model(data: Any, sentence: str) -> None:
    with pytest.raises(BottleneckError, match=sentence):
        sb.rank(RUN, data=data)
