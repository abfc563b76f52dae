"""An n-gram model as a SOURCE: its rows, its targets, and the rank of what it predicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from softmax_bottleneck import corpora
from softmax_bottleneck.errors import CorpusError
from softmax_bottleneck.language_models.ngram import KneserNey, histories
from softmax_bottleneck.sources import open_source


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Texts over 21 types; the last one has a type of its own."""
    generator = np.random.default_rng(0)
    for split, lines in {"train": 300, "valid": 20, "test": 60}.items():
        rows = [" ".join(f"w{word}" for word in generator.integers(0, 20, 8)) for _ in range(lines)]
        (tmp_path / f"{split}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def test_its_rows(corpus: Path) -> None:
    source = open_source(f"kn3:{corpus}")
    text = corpora.load(corpus)
    ids = text.split("test")
    model = KneserNey.fit(text.split("train"), order=3, vocab_size=21)
    assert source.shape == (len(ids) - 1, 21)
    assert source.targets.tolist() == ids[1:].tolist()
    expected = model.log_prob(histories(ids[:-1], 3))
    np.testing.assert_array_equal(np.concatenate([block.log_probs for block in source.blocks()]), expected)
    some = list(source.blocks([range(200, 300)]))
    assert [block.start for block in some] == [200]
    np.testing.assert_array_equal(some[0].log_probs, expected[200:300])
    assert source.text.before(2, 2) == " ".join(text.vocabulary.decode(ids[1:3]))


def test_another_text(corpus: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for split in corpora.SPLITS:
        (other / f"{split}.txt").write_text("w1 w2 w3\n" * 4, encoding="utf-8")
    source = open_source(f"kn3:{corpus}", data=str(other), split="valid", contexts=5)
    assert source.shape == (5, 21)
    assert source.description["corpus"] == str(other)
    (other / "test.txt").write_text("unheard\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="the token 'unheard' is not among the 21"):
        open_source(f"kn3:{corpus}", data=str(other))
