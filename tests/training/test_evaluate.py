"""Perplexity against the whole text scored at once by `log_prob`."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from softmax_bottleneck import heads
from softmax_bottleneck.errors import TrainingError
from softmax_bottleneck.evaluation import Perplexity
from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig
from softmax_bottleneck.training import evaluate


def _model(head: str = "mos") -> LanguageModel:
    torch.manual_seed(0)
    settings = {"lms-plif": {"knots": 50}, "mos": {"components": 2}, "moc": {"components": 2}}.get(head, {})
    backbone = {"name": "lstm", "embedding_size": 4, "hidden_size": 6, "layers": 2, "dropout": 0.5}
    config = {"backbone": backbone, "head": {"name": head, **settings}}
    return LanguageModel(ModelConfig.model_validate(config), vocab_size=9).double()


def _text(length: int = 40) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, 9, size=length)


@pytest.mark.parametrize(("head", "length"), [*((head, 40) for head in heads.REGISTRY), ("mos", 2), ("mos", 3)])
def test_perplexity_by_hand(head: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the length of the segments."""
    model, ids = _model(head).eval(), _text(length)
    with torch.no_grad():
        hidden, _ = model.hidden(torch.from_numpy(ids).unsqueeze(1))
        log_prob = model.head.log_prob(hidden).squeeze(1).numpy()
    expected = -math.fsum(log_prob[t, ids[t + 1]] for t in range(length - 1)) / (length - 1)
    for segment in (1024, 7) if head == "mos" else (1024,):
        monkeypatch.setattr(sys.modules[evaluate.__module__], "SEGMENT", segment)  # the name hides its module
        scores = evaluate(model, ids)
        assert scores.tokens == length - 1
        assert scores.loss == pytest.approx(expected, rel=1e-14)
        assert scores.perplexity == pytest.approx(math.exp(expected), rel=1e-14)


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_and_the_random_state_are_restored_and_dropout_is_off(training: bool) -> None:
    model, before = _model().train(training), torch.get_rng_state()
    assert evaluate(model, _text()) == evaluate(model, _text())
    with pytest.raises(IndexError):
        evaluate(model, np.array([0, 99, 1]))
    assert model.training == model.backbone.training == training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("length", [0, 1])
def test_a_text_without_a_context(length: int) -> None:
    with pytest.raises(TrainingError, match=f"a text of {length} tokens cannot be scored"):
        evaluate(_model(), _text(length))


@pytest.mark.parametrize("loss", [math.nan, math.inf, 710.0])
def test_a_loss_without_a_perplexity(loss: float) -> None:
    with pytest.raises(TrainingError, match=rf"the mean loss is {loss:.4g} nats.*lower training\.optimizer\.learning"):
        Perplexity(loss, 5)
    assert Perplexity(0.0, 5).perplexity == 1.0
