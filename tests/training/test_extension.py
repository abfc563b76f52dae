"""A finished run gets more epochs: to the bytes of one that had them, or with the difference said and recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softmax_bottleneck.core.progress import Progress
from softmax_bottleneck.errors import RunError
from softmax_bottleneck.language_models.checkpoint import copy_weights, load
from softmax_bottleneck.training import RunConfig, fit, training_cost
from softmax_bottleneck.training.optimizer import learning_rate

Configure = Callable[..., RunConfig]
Contents = Callable[[Path], dict[str, bytes]]


class _Lines(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": {"schedule": "constant"}},
        {
            "optimizer": {"name": "sgd", "learning_rate": 1.0, "schedule": "constant", "warmup_steps": 0},
            "averaging": {"start": "non-monotone", "interval": 0, "latest": 2},
            "bptt_deviation": 3.0,
        },
    ],
)
def test_a_constant_schedule_is_continued_exactly(
    settings: dict[str, Any], tmp_path: Path, configure: Configure, contents: Contents
) -> None:
    whole = fit(configure(epochs=4, **settings), tmp_path / "whole", device="cpu")
    heard = _Lines()
    fit(configure(epochs=1, **settings), tmp_path / "run", device="cpu")
    for epochs in (2, 4):
        fit(configure(epochs=epochs, **settings), tmp_path / "run", device="cpu", progress=heard)
    assert contents(tmp_path / "run") == contents(whole.path)
    assert not any("differs" in line for line in heard.lines)


def test_a_cosine_schedule_is_not_and_says_so(tmp_path: Path, configure: Configure) -> None:
    run, heard = tmp_path / "run", _Lines()
    first = fit(configure(epochs=2), run, device="cpu")
    assert "extended_from" not in load(run).config
    done = fit(configure(epochs=3), run, device="cpu", progress=heard)
    assert [line for line in heard.lines if "differs from that of a run that has all epochs from its start" in line]
    assert load(run).config["extended_from"] == [2]
    assert load(run).config["training"]["epochs"] == 3
    rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()][:-1]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert done.steps == rows[-1]["step"] == first.steps * 3 // 2
    optimizer = configure().training.optimizer
    assert rows[1]["learning_rate"] == learning_rate(optimizer, step=first.steps - 1, steps=first.steps)
    assert rows[2]["learning_rate"] == learning_rate(optimizer, step=done.steps - 1, steps=done.steps)
    assert fit(configure(epochs=3), run, device="cpu") == done
    with pytest.raises(RunError, match=r"different configuration: training\.epochs \(was 3, now 2\)"):
        fit(configure(epochs=2), run, device="cpu")


def test_a_copy_has_no_state_to_continue_from(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    fit(configure(), tmp_path / "run", device="cpu")
    copy = copy_weights(tmp_path / "run", tmp_path / "copy")
    before = contents(copy)
    with pytest.raises(RunError, match=r"has no state of its training, so more epochs cannot follow"):
        fit(configure(epochs=3), copy, device="cpu")
    assert contents(copy) == before


def test_what_training_takes(configure: Configure) -> None:
    config = configure(epochs=3, averaging={"start": "epoch", "epoch": 1})
    cost = training_cost(config, device="cpu")
    assert (cost.parameters, cost.steps_per_epoch, cost.epochs, cost.device) == (1177, 13, 3, "cpu")
    assert cost.measured_steps == 10
    assert cost.seconds == pytest.approx(3 * cost.seconds_per_epoch)
    assert cost.seconds_per_epoch > 13 * cost.seconds_per_step > 0
    assert cost.memory_bytes > 2**26
    assert json.loads(json.dumps(cost.to_dict()))["parameters"] == 1177
    assert "median of 10 steps on cpu" in str(cost)
