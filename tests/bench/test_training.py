"""The benchmark of training steps: both sides have the same loss, and the goals follow from what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import torch

from softmax_bottleneck.bench import bench_training, training
from softmax_bottleneck.bench.in_turn import Measured, check_goals
from softmax_bottleneck.bench.training import plain_loss
from softmax_bottleneck.language_models.model import LanguageModel
from softmax_bottleneck.training.objective import Objective
from softmax_bottleneck.training.presets import find


@pytest.mark.parametrize("preset", ["ptb-softmax", "ptb-mos"])
def test_without_dropout_the_plain_loss_is_the_objectives(preset: str) -> None:
    torch.manual_seed(0)
    config = training.shrunk(find(preset).config, 50)
    model = LanguageModel(config.model, vocab_size=40).double().eval()
    ids = torch.randint(40, (9, 3))
    _, ours, _ = Objective(model)(ids[:-1], ids[1:], model.backbone.initial_state(3))
    torch.testing.assert_close(plain_loss(model, ids[:-1], ids[1:]), ours, rtol=1e-12, atol=0)


def test_the_goals_follow_from_the_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case's work is done here, in this process, with seconds and bytes of its own."""

    def measure(cases: Mapping[str, partial[Any]], **more: Any) -> dict[str, Measured]:
        found = {}
        for name, make in cases.items():
            (case,) = make.args
            seconds = case.batch_size * (9.0 if case.plain else 1.0)
            found[name] = Measured([seconds], 100 * case.batch_size, [make()()])
        return found

    monkeypatch.setattr("softmax_bottleneck.bench.in_turn.in_turn", measure)
    found = bench_training(shrink=100)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    goals = {goal["what"]: (goal["measured"], goal["met"]) for goal in found["asked"]}
    assert goals == {
        "Softmax: seconds / plain": (pytest.approx(1 / 9), True),
        "MoS: plain seconds / ours": (pytest.approx(9), True),
        "MoS, batch 20: epoch / Softmax's": (pytest.approx(1), True),
        "MoS, batch 20: memory / Softmax's": (pytest.approx(1), True),
    }
    assert found["cases"]["softmax"]["epoch_seconds"] == pytest.approx(20 * 13_280)  # 929,589 / 70 a column


def test_on_a_gpu_an_epoch_has_goals_of_its_own() -> None:
    rows = {name: {"seconds": 1.0, "epoch_seconds": 20.0, "memory_bytes": 1} for name in training.CASES}
    met = {goal["what"]: goal["met"] for goal in check_goals(training.goals(rows, on_gpu=True))}
    assert not met["Softmax: seconds an epoch"]
    assert met["MoS, batch 20: seconds an epoch"]
