"""BLEU of responses: precision and recall over the responses of a context, bootstrap intervals."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from softmax_bottleneck import corpora
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.evaluation import Beam, beam_search, bleu
from softmax_bottleneck.evaluation.dialog import SCORES, bootstrap, context_scores, sentence_bleu
from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig
from softmax_bottleneck.language_models.reading import Pairs

REFERENCE = ["well", "i", "do", "not", "know", "what", "you", "mean", "."]
RESPONSES = [
    line.split() for line in ("i do not know .", "well yes", "i know", "what ?", "well i do not know what you .")
]


def test_precision_is_the_mean_and_recall_the_maximum() -> None:
    assert sentence_bleu(REFERENCE, ["no"]) == sentence_bleu(REFERENCE, []) == [0.0] * 4
    found = dict(zip(SCORES, context_scores(REFERENCE, RESPONSES), strict=True))
    for order in range(1, 5):
        each = [sentence_bleu(REFERENCE, response)[order - 1] for response in RESPONSES]
        assert found[f"BLEU-{order} precision"] == pytest.approx(sum(each) / 5)
        assert found[f"BLEU-{order} recall"] == pytest.approx(max(each))


def test_an_interval_holds_the_mean_as_often_as_it_says() -> None:
    """Each conversation has a mean of its own, so its lines are not independent draws."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(100):
        groups = np.repeat(np.arange(40), 25)
        scores = (rng.normal(size=40)[groups] + 0.1 * rng.normal(size=1000))[:, None]
        low, high = bootstrap(scores, groups=groups)
        held += bool(low[0] <= 0 <= high[0])
    assert 0.86 < held / 100 <= 1


def test_every_context_is_answered_and_compared_with_its_line(
    talk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpora.load(talk_folder)
    torch.manual_seed(1)
    sizes = {"embedding_size": 4, "line_size": 3, "context_size": 5, "hidden_size": 6}
    config = ModelConfig.model_validate({"backbone": {"name": "encoder-decoder", **sizes}})
    model, beam = LanguageModel(config, vocab_size=len(corpus.vocabulary)).eval(), Beam(size=4, longest=6, kept=2)
    found = bleu(model, corpus, beam=beam)
    pairs = Pairs(corpus, "test", lines=10, at_once=1)
    rows = []
    for number in range(len(pairs)):
        (answers,) = beam_search(model, pairs.of([number]), end=corpus.vocabulary.index["<eos>"], settings=beam)
        rows.append(context_scores(pairs.references[number], [each.ids for each in answers]))
    assert found.contexts == len(pairs)
    for name, mean in zip(SCORES, np.mean(rows, axis=0), strict=True):
        score = found.scores[name]
        assert score.mean == pytest.approx(mean)
        assert score.low <= score.mean <= score.high
    assert found.to_dict()["references"] == 1
    assert "BLEU-4 recall" in str(found)
    assert bleu(model, corpus, contexts=3, beam=beam).contexts == 3
    with pytest.raises(SourceError, match="answers must be between 1 and the"):
        bleu(model, corpus, contexts=10_000)
    stream = LanguageModel(ModelConfig(), vocab_size=len(corpus.vocabulary))
    with pytest.raises(SourceError, match="lstm reads a text as one stream, without responses: BLEU needs a run"):
        bleu(stream, corpus)
    monkeypatch.setitem(sys.modules, "nltk.translate.bleu_score", None)
    monkeypatch.setitem(sys.modules, "nltk.translate", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'softmax-bottleneck\[dialog\]'"):
        bleu(model, corpus)
