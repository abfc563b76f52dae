"""Training on a pretended accelerator ends where training on the CPU does."""

from __future__ import annotations

import copy
import itertools
import json
import os
from pathlib import Path
from typing import Any

import accelerator
import numpy as np
import pytest
import torch

from formulas import SETTINGS
from softmax_bottleneck.evaluation import beam_search, cache_evaluate, dynamic_evaluate, gradient_statistics
from softmax_bottleneck.evaluation.cache import tune_cache
from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig
from softmax_bottleneck.language_models.reading import Batch
from softmax_bottleneck.training import evaluate, fit, loop, training_cost
from softmax_bottleneck.training.config import parse

M = 11
BACKBONES: dict[str, dict[str, Any]] = {
    "lstm": {"embedding_size": 4, "hidden_size": 6, "layers": 2, "dropout": 0.0},
    "awd-lstm": {"embedding_size": 4, "hidden_sizes": [5, 6]},
    "encoder-decoder": {"embedding_size": 4, "line_size": 3, "context_size": 5, "hidden_size": 6, "dropout": 0.0},
}
DRAWN = torch.randint(M, (4, 7, 4), generator=torch.Generator().manual_seed(0))
STREAM = Batch(DRAWN[0], DRAWN[1])
PAIRS = STREAM._replace(contexts=DRAWN[2:, :5])


def model_of(backbone: str, head: str, **settings: Any) -> LanguageModel:
    settings = {"name": head, "embedding_size": 4, **SETTINGS.get(head, {}), **settings}
    if (backbone, head) == ("encoder-decoder", "doc"):  # it has one layer
        settings["components"] = [2]
    described = {"backbone": {"name": backbone, **BACKBONES[backbone]}, "head": settings}
    return LanguageModel(ModelConfig.model_validate(described), vocab_size=M)


RUNS: dict[str, dict[str, Any]] = {
    "adamw": {"model": {"backbone": {"name": "lstm", **BACKBONES["lstm"]}, "head": {"name": "mos", "components": 2}}},
    "nt-asgd": {
        "model": {
            "backbone": {"name": "awd-lstm", **BACKBONES["awd-lstm"]},
            "head": {"name": "mos", "components": 2, "embedding_size": 4, "context_dropout": 0.3},
        },
        "training": {
            "optimizer": {"name": "sgd", "learning_rate": 12.0},
            "averaging": {"start": "non-monotone", "interval": 0, "latest": 1},
            "loss_fraction": 0.5,
            "micro_batch_size": 2,
            "unigram_bias": True,
        },
    },
    "pairs": {
        "model": {"backbone": {"name": "encoder-decoder", **BACKBONES["encoder-decoder"]}},
        "training": {"batch_size": 16},
    },
}


@pytest.mark.parametrize(("run", "float64"), [("adamw", False), ("nt-asgd", True), ("pairs", False)])
def test_a_run_that_is_stopped_and_resumed(
    run: str, float64: bool, short_corpus: Path, talk_folder: Path, tmp_path: Path, monkeypatch: Any, device: str
) -> None:
    training = {"epochs": 2, "batch_size": 4, "bptt": 10, "save_every": 100, **RUNS[run].get("training", {})}
    corpus = talk_folder if run == "pairs" else short_corpus
    monkeypatch.setattr(accelerator.MODULE, "float64", float64)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    config = parse({**RUNS[run], "corpus": str(corpus), "training": training}, where="the test")
    expected = fit(config, tmp_path / "cpu", device="cpu")
    step, steps = loop.Loop._step, itertools.count()

    def interrupted(*args: Any) -> None:
        step(*args)
        if next(steps) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop.Loop, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(config, tmp_path / "run", device=device)
    found = fit(config, tmp_path / "run", device=device)
    # Adam enlarges the roundoff of small gradients.
    assert found.test.loss == pytest.approx(expected.test.loss, rel=1e-3)
    assert (found.averaged_steps > 0) == (expected.averaged_steps > 0) == (run == "nt-asgd")
    assert json.loads((tmp_path / "run/config.json").read_text())["machine"]["gpu"] == device


def test_what_training_takes(short_corpus: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softmax_bottleneck.training.cost.STEPS", 1)
    config = parse({"corpus": str(short_corpus), "training": {"batch_size": 4, "bptt": 5}}, where="the test")
    cost = training_cost(config, device=device)
    assert cost.memory_bytes is None
    assert f"unknown, measured on {device}" in str(cost)


TEXT = np.cumsum(np.random.default_rng(0).integers(1, 3, 90)) % M


def test_evaluation(no_float64: None, device: str) -> None:
    model = model_of("awd-lstm", "mos", components=2).eval()
    moved = copy.deepcopy(model).to(device)
    for evaluation in (
        evaluate,
        cache_evaluate,
        lambda model, text: cache_evaluate(model, text, tune_cache(model, text)),
    ):
        assert evaluation(moved, TEXT).loss == pytest.approx(evaluation(model, TEXT).loss, rel=1e-5)
    statistics = [gradient_statistics(one, TEXT, batch_size=7) for one in (model, moved)]
    expected, found = (
        dynamic_evaluate(one, TEXT, each).loss for one, each in zip((model, moved), statistics, strict=True)
    )
    assert found == pytest.approx(expected, rel=1e-5)
    assert found < evaluate(model, TEXT).loss


def test_beam_search(no_float64: None, device: str) -> None:
    model = model_of("encoder-decoder", "mos", components=2).eval()
    batch = PAIRS._replace(inputs=torch.zeros(1, 4, dtype=torch.long), targets=torch.zeros(1, 4, dtype=torch.long))
    expected = beam_search(model, batch, end=0)
    found = beam_search(model.to(device), batch.to(device), end=0)
    for row, other in zip(found, expected, strict=True):
        assert {each.ids: each.log_prob for each in row} == pytest.approx(
            {each.ids: each.log_prob for each in other}, rel=1e-5
        )
