"""The benchmark of training steps: both sides have the same loss, and the goals follow from what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from softmax_bottleneck.bench import bench_training, training
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


def test_the_goals_follow_from_the_measurements(here: Callable[..., list[set[str]]]) -> None:
    seconds = {"": 1.0, "softmax": 2.0, "mos": 4.0, "lms-plif": 1.0}

    def measured(name: str, case: dict[str, Any]) -> tuple[float, int]:
        if "head" in case:
            return seconds[case["head"]], 1000
        return case["batch_size"] * (9.0 if case["plain"] else 1.0), 100 * case["batch_size"]

    here(measured)
    report = bench_training(shrink=100)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    goals = {goal["what"]: (goal["measured"], goal["met"]) for goal in report["goals"]}
    assert goals == {
        "Softmax: seconds / plain": (pytest.approx(1 / 9), True),
        "MoS: plain seconds / ours": (pytest.approx(9), True),
        "MoS, batch 20: epoch / Softmax's": (pytest.approx(1), True),
        "MoS, batch 20: memory / Softmax's": (pytest.approx(1), True),
        "GPT-2, Softmax: seconds / own": (2.0, False),
        "GPT-2, LMS-PLIF: seconds / own": (1.0, True),
    }
    assert report["cases"]["softmax"]["epoch_seconds"] == pytest.approx(20 * 13_280)  # 929,589 / 70 a column
    losses = [case["loss"] for name, case in report["cases"].items() if name.startswith("gpt2")]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)  # every head starts as the model's own softmax
