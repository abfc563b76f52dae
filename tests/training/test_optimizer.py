"""Schedules by their closed form, what is decayed how much, and the trigger of NT-ASGD as printed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck import heads
from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig
from softmax_bottleneck.training import AveragingConfig, OptimizerConfig
from softmax_bottleneck.training.optimizer import (
    build,
    is_non_monotone,
    learning_rate,
    set_learning_rate,
    starts_averaging,
)


def _rates(steps: int, **settings: Any) -> list[float]:
    config = OptimizerConfig(learning_rate=2.0, **settings)
    return [learning_rate(config, step=step, steps=steps) for step in range(steps)]


def test_schedules() -> None:
    """A straight warm-up, also one longer than the training; half a cosine that ends one step after the last."""
    warmup = [0.5, 1.0, 1.5, 2.0]
    assert _rates(8, warmup_steps=4, schedule="constant") == [*warmup, 2.0, 2.0, 2.0, 2.0]
    assert _rates(4, warmup_steps=100) == warmup
    assert _rates(1, warmup_steps=0) == [2.0]
    falling = [2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)]
    assert _rates(8, warmup_steps=4) == pytest.approx([*warmup, *falling], rel=1e-15)
    assert _rates(4, warmup_steps=0) == pytest.approx(falling, rel=1e-15)


@pytest.mark.parametrize("head", heads.REGISTRY)
@pytest.mark.parametrize(("name", "decayed"), [("adamw", "matrices"), ("sgd", "all")])
def test_what_weight_decay_is_of(head: str, name: Any, decayed: Any) -> None:
    model = LanguageModel(ModelConfig.model_validate({"head": {"name": head}, "tie_embeddings": False}), vocab_size=11)
    config = OptimizerConfig(name=name, weight_decay=0.3, decayed=decayed)
    optimizer = build(config, model.parameters(), model.head.parameter_settings())
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert len(decay) == len(list(model.parameters()))
    for key, parameter in model.named_parameters():
        spared = "function." in key or ("bias" in key and decayed == "matrices")
        assert decay[id(parameter)] == (0.0 if spared else 0.3), key


@pytest.mark.parametrize("head", ["lms-plif", "mos-plif"])
@pytest.mark.parametrize("learned", [True, False])
def test_slopes_have_their_own_learning_rate(head: str, learned: bool) -> None:
    """Ten times the step of all other parameters, at whatever rate the schedule gives; none where they are frozen."""
    settings = {"name": head, "knots": 20, "slope_learning_rate": 10.0, "learn_slopes": learned}
    model = LanguageModel(ModelConfig.model_validate({"head": settings}), vocab_size=11)
    optimizer = build(OptimizerConfig(name="sgd"), model.parameters(), model.head.parameter_settings())
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    set_learning_rate(optimizer, 0.5)
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
    optimizer.step()
    for name, parameter in model.named_parameters():
        moved = (before[name] - parameter).detach()
        step = 0.0 if not parameter.requires_grad else 5.0 if name == "head.function.v" else 0.5
        torch.testing.assert_close(moved, torch.full_like(moved, step), rtol=1e-5, atol=1e-5)
    assert model.head.get_parameter("function.v").requires_grad == learned


def _algorithm_1(losses: list[float], n: int) -> int | None:
    """Merity et al. 2018, algorithm 1: ``if t > n and v > min of logs[0 … t − n − 1]: T ← k``; ``logs[t] ← v``."""
    logs: list[float] = []
    for epoch, v in enumerate(losses, start=1):
        if len(logs) > n and v > min(logs[: len(logs) - n]):
            return epoch
        logs.append(v)
    return None


@given(losses=st.lists(st.integers(0, 9).map(float), max_size=30), n=st.integers(0, 8))
def test_it_fires_where_the_algorithm_does(losses: list[float], n: int) -> None:
    fired = [epoch for epoch in range(1, len(losses) + 1) if is_non_monotone(losses[:epoch], n)]
    assert (fired[0] if fired else None) == _algorithm_1(losses, n)


@pytest.mark.parametrize(
    ("settings", "losses", "expected"),
    [
        ({}, [3.0, 4.0], [False] * 4),
        ({"latest": 1}, [3.0, 4.0], [False] * 4),
        ({"start": "epoch"}, [], [True] * 4),
        ({"start": "epoch", "epoch": 2}, [1.0] * 9, [False, False, True, True]),
        ({"start": "non-monotone", "interval": 0}, [3.0, 2.0, 1.0], [False] * 4),
        ({"start": "non-monotone", "interval": 0}, [3.0, 4.0], [True] * 4),
        ({"start": "non-monotone", "interval": 0, "latest": 2}, [3.0, 2.0, 1.0], [False, False, True, True]),
    ],
)
def test_when_averaging_starts(settings: dict[str, object], losses: list[float], expected: list[bool]) -> None:
    config = AveragingConfig.model_validate(settings)
    assert [starts_averaging(config, losses, epochs=epochs) for epochs in range(4)] == expected
