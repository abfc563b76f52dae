"""Training on pairs: every pair once an epoch, the loss of their tokens alone, and kills that leave no trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from softmax_bottleneck import corpora
from softmax_bottleneck.errors import ConfigurationError, TrainingError
from softmax_bottleneck.language_models.checkpoint import load
from softmax_bottleneck.language_models.model import LanguageModel
from softmax_bottleneck.language_models.reading import Batch, Pairs
from softmax_bottleneck.training import RunConfig, evaluate, fit
from softmax_bottleneck.training.config import TrainingConfig, parse
from softmax_bottleneck.training.epochs import PairEpochs, StreamEpochs, epochs
from softmax_bottleneck.training.evaluate import text_of
from softmax_bottleneck.training.objective import Objective, accumulate

TRAIN = (sys.executable, "-m", "softmax_bottleneck", "train")
SIZES = {"embedding_size": 4, "line_size": 4, "context_size": 6, "hidden_size": 8, "context_lines": 3}


@pytest.fixture
def config(talk_folder: Path) -> RunConfig:
    return _config(talk_folder)


def _config(folder: Path, **training: Any) -> RunConfig:
    values = {
        "corpus": str(folder),
        "seed": 3,
        "model": {
            "backbone": {"name": "encoder-decoder", "dropout": 0.1, **SIZES},
            "head": {"name": "mos", "embedding_size": 4, "components": 2},
        },
        "training": {"epochs": 3, "batch_size": 8, "save_every": 4, "optimizer": {"learning_rate": 0.02}} | training,
    }
    return parse(values, where="the test")


def _pairs(batch: Batch) -> Counter[bytes]:
    assert batch.contexts is not None
    parts = [(batch.inputs[:, at], batch.targets[:, at], batch.contexts[:, :, at]) for at in range(len(batch.inputs.T))]
    # Without padding, which depends on the other pairs of the batch.
    return Counter(repr([[x for x in part.ravel().tolist() if x > 0] for part in one]).encode() for one in parts)


def test_an_epoch_has_every_pair_once_in_an_order_of_its_own(talk_folder: Path) -> None:
    corpus, settings = corpora.load(talk_folder), TrainingConfig(batch_size=5)
    data = epochs(corpus, settings, seed=7, lines=3)
    assert isinstance(data, PairEpochs)
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
    shares = [epochs(corpus, settings, seed=7, lines=3, part=part) for part in (slice(0, 2), slice(2, 5))]
    halves = [list(share.batches(0)) for share in shares]
    assert [_pairs(a) + _pairs(b) for a, b in zip(*halves, strict=True)] == [_pairs(batch) for batch in first]
    assert data.counts(len(corpus.vocabulary)).sum() == len(data.pairs.places)


def test_a_stream_stays_a_stream(talk_folder: Path) -> None:
    assert isinstance(epochs(corpora.load(talk_folder), TrainingConfig(), seed=7, lines=None), StreamEpochs)


def test_a_loss_is_that_of_the_predicted_tokens(config: RunConfig) -> None:
    """Against log-probabilities of each pair alone."""
    corpus = corpora.load(config.corpus)
    torch.manual_seed(0)
    model = LanguageModel(config.model, vocab_size=len(corpus.vocabulary)).eval()
    pairs = Pairs(corpus, "test", lines=3, at_once=64)
    total, count = 0.0, 0
    for number in range(len(pairs)):
        batch = pairs.of([number])
        hidden, _ = model.hidden(batch.inputs, contexts=batch.contexts)
        log_probs = model.head.log_prob(hidden)
        total -= log_probs.gather(-1, batch.targets.unsqueeze(-1)).sum().item()
        count += len(batch.targets)
    found = evaluate(model, text_of(model, corpus, "test"))
    assert found.tokens == count
    assert found.loss == pytest.approx(total / count, rel=1e-6)
    batch = pairs.of(range(len(pairs)))
    _, nll, after = Objective(model)(batch.inputs, batch.targets, (), batch.contexts)
    assert nll.item() == pytest.approx(total / count, rel=1e-5)
    assert after == ()


def test_pairs_in_turn_give_the_same_gradient(config: RunConfig) -> None:
    corpus = corpora.load(config.corpus)
    torch.manual_seed(0)
    model = LanguageModel(config.model, vocab_size=len(corpus.vocabulary)).eval()
    batch, gradients = Pairs(corpus, "test", lines=3, at_once=64).of(range(11)), []
    for columns in (None, 4):
        model.zero_grad()
        _, state = accumulate(Objective(model), batch, (), columns=columns)
        assert state == ()
        gradients.append(torch.cat([weight.grad.ravel() for weight in model.parameters() if weight.grad is not None]))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_it_learns_to_go_on_from_the_context(talk_folder: Path, tmp_path: Path) -> None:
    """A line begins where the one before it ended, which nothing but its context tells."""
    done = fit(_config(talk_folder, epochs=20, batch_size=4), tmp_path / "run", device="cpu")
    run, corpus = load(done.path), corpora.load(talk_folder)
    pairs = Pairs(corpus, "test", lines=3, at_once=64)
    batch = pairs.of(range(len(pairs)))
    with torch.no_grad():
        nll = [
            run.model.head.nll(run.model.hidden(batch.inputs[:1], contexts=contexts)[0], batch.targets[:1]).item()
            for contexts in (batch.contexts, torch.full_like(batch.contexts, -1))  # type: ignore[arg-type]
        ]
    assert nll[0] + 0.5 < nll[1]  # of ten words, log 10 = 2.3 nats
    assert evaluate(run.model, text_of(run.model, corpus, "test")) == done.test


def test_kills_of_a_real_process_leave_no_trace(
    talk_folder: Path, tmp_path: Path, contents: Callable[[Path], dict[str, bytes]]
) -> None:
    config = _config(talk_folder, epochs=4, batch_size=4, save_every=3)
    (tmp_path / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    fit(config, tmp_path / "whole", device="cpu")
    run, reached = tmp_path / "run", -1
    for _ in range(2):
        with _train(tmp_path) as process:
            while (step := _saved(run)) <= reached or step == 0:
                assert process.poll() is None, process.communicate()
                time.sleep(0.001)
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        reached = _saved(run) + 30
        assert not (run / "COMPLETE").exists()
    with _train(tmp_path) as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert contents(run) == contents(tmp_path / "whole")


def _saved(run: Path) -> int:
    return max((int(file.stem.split("-")[1]) for file in (run / "trainer_state").glob("step-*")), default=0)


def _train(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*TRAIN, "--config", "config.json", "--out", "run", "--device", "cpu"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_pairs_cannot_have_is_refused(talk_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="bptt_deviation=3 is for models that read a stream"):
        fit(_config(talk_folder, bptt_deviation=3.0), tmp_path / "run", device="cpu")
    with pytest.raises(ConfigurationError, match=r"loss_fraction=0\.5 is for models that read a stream"):
        fit(_config(talk_folder, loss_fraction=0.5), tmp_path / "run", device="cpu")
    with pytest.raises(TrainingError, match=r"the training text has \d+ pairs, too few for batch_size=500"):
        fit(_config(talk_folder, batch_size=500), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
