"""Training on pairs: every pair once an epoch, and the loss of their tokens alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from softmax_bottleneck import corpora
from softmax_bottleneck.errors import ConfigurationError, TrainingError
from softmax_bottleneck.language_models.model import LanguageModel
from softmax_bottleneck.language_models.reading import Batch, Pairs
from softmax_bottleneck.training import RunConfig, evaluate
from softmax_bottleneck.training.config import TrainingConfig
from softmax_bottleneck.training.epochs import Epochs
from softmax_bottleneck.training.evaluate import text_of
from softmax_bottleneck.training.objective import Objective, accumulate

from .conftest import train


def _model(config: RunConfig) -> tuple[LanguageModel, corpora.Corpus]:
    corpus = corpora.load(config.corpus)
    torch.manual_seed(0)
    return LanguageModel(config.model, vocab_size=len(corpus.vocabulary)).eval(), corpus


def _pairs(batch: Batch) -> Counter[bytes]:
    parts = [(batch.inputs[:, at], batch.targets[:, at], batch.contexts[:, :, at]) for at in range(len(batch.inputs.T))]
    # Without padding, which depends on the other pairs of the batch.
    return Counter(repr([[x for x in part.ravel().tolist() if x > 0] for part in one]).encode() for one in parts)


def test_an_epoch_has_every_pair_once_in_an_order_of_its_own(talk_folder: Path) -> None:
    corpus, settings = corpora.load(talk_folder), TrainingConfig(batch_size=5)
    data = Epochs(corpus, settings, seed=7, lines=3)
    everything = _pairs(data.pairs.of(range(len(data.pairs))))
    assert everything.total() == len(data.pairs) > 80
    first, again, second = (list(data.batches(epoch)) for epoch in (0, 0, 1))
    assert len(first) == len(data.lengths(0)) == len(data.pairs) // 5
    seen = sum((_pairs(batch) for batch in first), Counter[bytes]())
    assert seen <= everything
    assert seen.total() == 5 * len(first)
    assert all(torch.equal(one.inputs, other.inputs) for one, other in zip(first, again, strict=True))
    assert [_pairs(batch) for batch in first] != [_pairs(batch) for batch in second]
    rest = list(data.batches(0, start=4))
    assert [_pairs(batch) for batch in rest] == [_pairs(batch) for batch in first[4:]]
    shares = [Epochs(corpus, settings, seed=7, lines=3, part=part) for part in (slice(0, 2), slice(2, 5))]
    halves = [list(share.batches(0)) for share in shares]
    assert [_pairs(a) + _pairs(b) for a, b in zip(*halves, strict=True)] == [_pairs(batch) for batch in first]
    assert data.counts(len(corpus.vocabulary)).sum() == len(data.pairs.places)


def test_a_loss_is_that_of_the_predicted_tokens(pairs_config: RunConfig) -> None:
    """Against log-probabilities of each pair alone."""
    model, corpus = _model(pairs_config)
    pairs = Pairs(corpus, "test", lines=3, at_once=64)
    total, count = 0.0, 0
    for number in range(len(pairs)):
        batch = pairs.of([number])
        hidden, _ = model.hidden(batch.inputs, contexts=batch.contexts)
        total -= model.head.log_prob(hidden).gather(-1, batch.targets.unsqueeze(-1)).sum().item()
        count += len(batch.targets)
    scores = evaluate(model, text_of(model, corpus, "test"))
    assert scores.tokens == count
    assert scores.loss == pytest.approx(total / count, rel=1e-6)
    batch = pairs.of(range(len(pairs)))
    _, nll, after = Objective(model)(batch.inputs, batch.targets, (), batch.contexts)
    assert nll.item() == pytest.approx(total / count, rel=1e-5)
    assert after == ()


def test_pairs_in_turn_give_the_same_gradient(pairs_config: RunConfig) -> None:
    model, corpus = _model(pairs_config)
    batch, gradients = Pairs(corpus, "test", lines=3, at_once=64).of(range(11)), []
    for columns in (None, 4):
        model.zero_grad()
        _, state = accumulate(Objective(model), batch, (), columns=columns)
        assert state == ()
        gradients.append([weight.grad for weight in model.parameters()])
        assert all(gradient is not None and gradient.any() for gradient in gradients[-1])  # that of the encoder, too
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_what_pairs_cannot_have_is_refused(pairs_config: RunConfig, tmp_path: Path) -> None:
    for training, error, said in (
        ({"bptt_deviation": 3.0}, ConfigurationError, "bptt_deviation=3 is for models that read a stream"),
        ({"loss_fraction": 0.5}, ConfigurationError, r"loss_fraction=0\.5 is for models that read a stream"),
        ({"batch_size": 500}, TrainingError, r"the training text has \d+ pairs, too few for batch_size=500"),
    ):
        with pytest.raises(error, match=said):
            train(pairs_config.replace(training=training), tmp_path / "run")
    assert not (tmp_path / "run").exists()
