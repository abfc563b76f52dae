"""The continuous cache against the full distribution written out, word by word."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from softmax_bottleneck import perplexity
from softmax_bottleneck.errors import ConfigurationError, TrainingError
from softmax_bottleneck.evaluation import Cache, cache, cache_evaluate, tune_cache
from softmax_bottleneck.language_models.model import LanguageModel

from .conftest import M

Build = Callable[..., LanguageModel]
Ids = NDArray[np.int64]


def _by_hand(model: LanguageModel, text: Ids, settings: Cache) -> float:
    with torch.no_grad():
        hidden, _ = model.eval().hidden(torch.from_numpy(text[:-1]).unsqueeze(1))
        rows, keys = model.head.log_prob(hidden).squeeze(1).exp().numpy(), hidden.squeeze(1).numpy()
    total = 0.0
    for t, row in enumerate(rows):
        row = row.copy()
        first = max(0, t - settings.window)
        if t > first:
            similarity = np.exp(settings.theta * keys[first:t] @ keys[t])
            share = np.zeros(M)
            np.add.at(share, text[first + 1 : t + 1], similarity / similarity.sum())
            row = (1 - settings.weight) * row + settings.weight * share
        assert row.sum() == pytest.approx(1)
        total -= math.log(row[text[t + 1]])
    return total / len(rows)


@pytest.mark.parametrize("window", [1, 7, 50, 1000])
@pytest.mark.parametrize(("theta", "weight"), [(0.0, 0.3), (2.0, 0.1), (2.0, 0.0)])
def test_the_mixture_by_hand(
    window: int, theta: float, weight: float, build: Build, text: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "BLOCK", 16)
    model, settings = build().train(), Cache(window=window, theta=theta, weight=weight)
    found = cache_evaluate(model, text, settings)
    assert model.training
    assert found.loss == pytest.approx(_by_hand(model, text, settings), rel=1e-10)
    assert found.tokens == len(text) - 1


def test_the_best_of_what_is_tried(build: Build, text: Ids) -> None:
    model = build()
    chosen = tune_cache(model, text, window=40)
    losses = {
        (theta, weight): cache_evaluate(model, text, Cache(window=40, theta=theta, weight=weight)).loss
        for theta in cache.THETAS
        for weight in cache.WEIGHTS
    }
    assert losses[chosen.theta, chosen.weight] == min(losses.values())
    assert chosen.window == 40


@pytest.mark.parametrize("wrong", [{"window": 0}, {"theta": -1.0}, {"theta": math.inf}, {"weight": 1.0}])
def test_what_is_refused(wrong: dict[str, Any], build: Build, runs: dict[str, Path]) -> None:
    sentence = "window must be at least 1, not 0" if "window" in wrong else "a cache needs a theta of at least 0"
    with pytest.raises(ConfigurationError, match=sentence):
        Cache(**wrong)
    with pytest.raises(ConfigurationError, match=sentence if "window" in wrong else "does not apply to cache"):
        perplexity(runs["softmax"], how="cache", settings=wrong)
    with pytest.raises(ConfigurationError, match="window does not apply to dynamic evaluation, which takes learning_r"):
        perplexity(runs["softmax"], how="dynamic", settings={"window": 3})
    with pytest.raises(TrainingError, match="a text of 1 tokens cannot be scored"):
        cache_evaluate(build(), np.array([3]))
