"""The numbers for training loops, in a real Trainer and by hand."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import softmax_bottleneck as sb
from softmax_bottleneck.errors import BottleneckError, ConfigurationError
from softmax_bottleneck.integrations import TransformersCallback, model_statistics, training_statistics

from .conftest import make

M, d = 50, 4
NAMES = {"rank", "rank_centered", "rank_low", "rank_high", "effective_rank_1e-3", "pairwise_kl", "gradient_kept"}


def test_the_numbers_are_those_of_the_measurements() -> None:
    torch.manual_seed(0)
    head, hidden, ids = nn.Linear(d, M), torch.randn(200, d), torch.randint(M, (200,))
    found = training_statistics(head, hidden, ids)
    assert set(found) == NAMES
    log_probs = torch.log_softmax(head(hidden), -1).detach()
    assert found["pairwise_kl"] == pytest.approx(sb.pairwise_kld(log_probs).kld, rel=1e-6)
    assert found["rank_centered"] == sb.rank(log_probs).rank_centered.value == d + 1
    assert 0 < found["gradient_kept"] < 1
    assert set(training_statistics(head, hidden)) == NAMES - {"gradient_kept"}


def _model() -> Any:
    return make("gpt2", vocab_size=M, n_positions=16)


def test_a_real_trainer_logs_them(tmp_path: Path) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    model = _model()
    rows = torch.randint(M, (32, 12), generator=torch.Generator().manual_seed(1))
    data: Any = [{"input_ids": row, "labels": row} for row in rows]
    settings = TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=4, report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    held_out = rows[:8]
    trainer = Trainer(model=model, args=settings, train_dataset=data)
    trainer.add_callback(TransformersCallback(held_out, log=trainer.log, every=2))
    own: list[dict[str, float]] = []
    trainer.add_callback(TransformersCallback(held_out, every=3, prefix="alone/", log=own.append))
    seen: list[Any] = []

    class Tracker(TrainerCallback):
        def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
            seen.append(logs)

    trainer.add_callback(Tracker())
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "bottleneck/rank" in entry]
    assert [entry["step"] for entry in logged] == [2, 4]
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [1, 2, 3, 4]
    assert sum("bottleneck/rank" in entry for entry in seen) == 2
    assert len(own) == 2  # after step 3, and at the end, once
    assert "alone/rank" in own[0]
    now = model_statistics(model, held_out)
    assert {f"bottleneck/{name}" for name in now} < set(logged[-1])
    assert logged[-1]["bottleneck/pairwise_kl"] == pytest.approx(now["pairwise_kl"], rel=1e-6)
    assert logged[0]["bottleneck/pairwise_kl"] != logged[1]["bottleneck/pairwise_kl"]
    assert all(math.isfinite(value) for value in now.values())
    trainer.train()  # again to the same step, whose last one is measured again
    assert len(own) == 4


def test_one_text_that_is_longer_or_shorter_than_a_window() -> None:
    ids = torch.randint(M, (1, 96), generator=torch.Generator().manual_seed(1))
    assert set(model_statistics(_model(), ids)) == set(model_statistics(_model(), ids[:, :12])) == NAMES


def test_a_text_that_cannot_be_read_is_refused_before_the_first_step() -> None:
    callback = TransformersCallback(torch.full((2, 12), M), log=print)
    state: Any = SimpleNamespace(is_world_process_zero=True, global_step=0)
    with pytest.raises(BottleneckError):
        callback.on_train_begin(None, state, None, model=_model())  # type: ignore[arg-type]


def test_a_model_that_diverged_goes_on_training() -> None:
    seen: list[Any] = []
    callback, model = TransformersCallback([[1, 2, 3]] * 4, log=seen.append, every=1), _model()
    state: Any = SimpleNamespace(is_world_process_zero=True, global_step=1)
    control: Any = SimpleNamespace(should_log=True)
    model.transformer.wte.weight.data.fill_(torch.nan)
    with pytest.warns(UserWarning, match="nothing was measured at step 1: the logits of .* are not finite"):
        callback.on_step_end(None, state, control, model=model)  # type: ignore[arg-type]
    assert not seen


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [({"every": 0}, "every must be at least 1"), ({"every": 2.5}, "whole"), ({"log": None}, "log must be a function")],
)
def test_settings_that_are_refused(setting: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        TransformersCallback([1, 2, 3], **{"log": print, **setting})


def test_head_statistics_are_those_of_numpy() -> None:
    torch.manual_seed(0)
    W, b, H = torch.randn(70, 6) + 1, torch.randn(70), torch.randn(3, 40, 6)
    found = sb.head_statistics(W, b, H)
    values = torch.linalg.svdvals(W.double())
    torch.testing.assert_close(torch.from_numpy(found.weight.values), values)
    as_dict = found.to_dict()
    units = nn.functional.normalize(W.double())
    cosines = (units @ units.T)[~torch.eye(70, dtype=torch.bool)]
    assert as_dict["weight"]["mean_cosine"] == pytest.approx(float(cosines.mean()))
    assert as_dict["bias_norm"] == pytest.approx(float(b.norm()))
    assert found.hidden.shape == (120, 6)
    states = H.double().flatten(0, 1)
    torch.testing.assert_close(torch.from_numpy(found.hidden.values), torch.linalg.svdvals(states))
    torch.testing.assert_close(torch.from_numpy(found.hidden.centered), torch.linalg.svdvals(states - states.mean(0)))
    assert "W: rank" in str(found)
    assert len(found.to_frame()) == 1


@pytest.mark.parametrize(
    ("weight", "hidden", "sentence"),
    [
        (torch.zeros(3), None, r"W must have the shape \(M, d\), not \(3,\)"),
        (torch.randn(5, 2), torch.randn(4, 3), "hidden states must have the size d = 2 of W"),
        (torch.full((5, 2), torch.inf), None, "NaN or infinity"),
    ],
)
def test_what_head_statistics_refuse(weight: Any, hidden: Any, sentence: str) -> None:
    with pytest.raises(BottleneckError, match=sentence):
        sb.head_statistics(weight, hidden=hidden)
