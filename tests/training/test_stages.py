"""Averaging, early stopping, starting from another run, and columns in turn, as whole runs show them."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from softmax_bottleneck import corpora
from softmax_bottleneck.errors import RunError, TrainingError
from softmax_bottleneck.language_models import checkpoint
from softmax_bottleneck.training import RunConfig, finetuning, fit, loop, override
from softmax_bottleneck.training.averaging import is_non_monotone
from softmax_bottleneck.training.objective import Objective

Configure = Callable[..., RunConfig]
Contents = Callable[[Path], dict[str, bytes]]
SGD = {"name": "sgd", "learning_rate": 2.0, "schedule": "constant", "warmup_steps": 0}


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def _state(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = (folder / "trainer_state").iterdir()
    return load_file(file)


def test_averages_are_evaluated_and_kept(tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the weights after every step from the second epoch on; the steps themselves go on as before."""
    seen: list[np.ndarray[Any, Any]] = []
    step = torch.optim.SGD.step

    def watched(optimizer: torch.optim.SGD) -> None:
        step(optimizer)
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        (embedding,) = (weight for weight in weights if weight.shape == (13, 4))
        seen.append(embedding.detach().numpy().astype(np.float64))

    monkeypatch.setattr(torch.optim.SGD, "step", watched)
    settings = {"epochs": 3, "dropout": 0.0, "optimizer": SGD}
    fit(configure(**settings, averaging={"start": "epoch", "epoch": 1}), tmp_path / "run", device="cpu")
    *epochs, _ = _rows(tmp_path / "run")
    first = epochs[0]["step"]
    assert [row["averaged_steps"] for row in epochs] == [0, first, 2 * first]
    name = "backbone.embedding.weight"
    found = _state(tmp_path / "run")[f"average.{name}"].numpy()
    np.testing.assert_allclose(found, np.mean(seen[first:], 0), rtol=1e-5, atol=1e-6)
    assert epochs[-1]["best"]
    assert np.array_equal(checkpoint.read_tensors(tmp_path / "run" / "model.safetensors")[name], found)
    monkeypatch.undo()
    fit(configure(**settings), tmp_path / "plain", device="cpu")
    assert torch.equal(_state(tmp_path / "plain")[f"model.{name}"], _state(tmp_path / "run")[f"model.{name}"])


def test_averaging_starts_when_validation_worsens(tmp_path: Path, configure: Configure) -> None:
    averaging = {"start": "non-monotone", "interval": 1}
    optimizer = {**SGD, "learning_rate": 12.0}
    config = configure(epochs=16, optimizer=optimizer, averaging=averaging, save_every=1000)
    fit(config, tmp_path, device="cpu")
    *epochs, _ = _rows(tmp_path)
    losses = [row["valid_loss"] for row in epochs]
    fired = next(epoch for epoch in range(1, 17) if is_non_monotone(losses[:epoch], 1))
    averaged = [row["averaged_steps"] for row in epochs]
    assert fired < 16
    assert averaged == [0] * fired + [(epoch + 1) * epochs[0]["step"] for epoch in range(16 - fired)]


def test_validations_within_an_epoch(tmp_path: Path, configure: Configure) -> None:
    """Each scores the weights of its step, and the loss of the steps since the last; the steps are the same."""
    config = configure(epochs=2, validations=3, dropout=0.0, optimizer=SGD)
    fit(config, tmp_path / "often", device="cpu")
    fit(configure(epochs=2, dropout=0.0, optimizer=SGD), tmp_path / "once", device="cpu")
    often, once = _rows(tmp_path / "often")[:-1], _rows(tmp_path / "once")[:-1]
    steps = once[0]["step"]
    assert [(row["epoch"], row["step"]) for row in often] == [
        (epoch + 1, epoch * steps + -(-steps * part // 3)) for epoch in range(2) for part in (1, 2, 3)
    ]
    assert [row["valid_loss"] for row in often[2::3]] == [row["valid_loss"] for row in once]
    lengths = np.full(steps, config.training.bptt)
    lengths[-1] = len(corpora.load(config.corpus).split("train")) // config.training.batch_size - 1 - lengths[:-1].sum()
    tokens = [sum(part) for part in np.split(lengths, [row["step"] for row in often[:2]])]
    losses = [row["train_loss"] for row in often]
    assert np.average(losses[:3], weights=tokens) == pytest.approx(once[0]["train_loss"], rel=1e-12)
    assert np.average(losses[3:], weights=tokens) == pytest.approx(once[1]["train_loss"], rel=1e-12)


def test_averaging_can_start_and_training_stop_within_an_epoch(tmp_path: Path, configure: Configure) -> None:
    averaging = {"start": "non-monotone", "interval": 1}
    optimizer = {**SGD, "learning_rate": 12.0}
    config = configure(epochs=16, validations=4, optimizer=optimizer, averaging=averaging, save_every=1000)
    done = fit(config, tmp_path / "averaged", device="cpu")
    *rows, _ = _rows(tmp_path / "averaged")
    assert (done.steps, done.averaged_steps) == (rows[-1]["step"], rows[-1]["averaged_steps"])
    assert done.valid_perplexity == next(row["valid_perplexity"] for row in reversed(rows) if row["best"])
    fired = next(n for n in range(len(rows)) if is_non_monotone([row["valid_loss"] for row in rows[: n + 1]], 1))
    assert (fired + 1) % 4  # not at an epoch's end
    assert [row["averaged_steps"] for row in rows] == [max(0, row["step"] - rows[fired]["step"]) for row in rows]
    config = configure(epochs=16, validations=4, optimizer=optimizer, stop_interval=1, save_every=1000)
    fit(config, tmp_path / "stopped", device="cpu")
    *stopped, _ = _rows(tmp_path / "stopped")
    assert [row["valid_loss"] for row in stopped] == [row["valid_loss"] for row in rows[: fired + 1]]


def test_it_stops_when_validation_no_longer_improves(tmp_path: Path, configure: Configure) -> None:
    config = configure(epochs=60, stop_interval=2, save_every=1000, optimizer={**SGD, "learning_rate": 12.0})
    fit(config, tmp_path, device="cpu")
    *epochs, _ = _rows(tmp_path)
    losses = [row["valid_loss"] for row in epochs]
    assert len(losses) < 60
    assert [is_non_monotone(losses[:epoch], 2) for epoch in range(1, len(losses) + 1)] == [
        *[False] * (len(losses) - 1),
        True,
    ]


def test_random_lengths_scale_the_learning_rate(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, taken = [], []
    accumulate, set_rate = loop.accumulate, loop.optimizers.set_learning_rate
    monkeypatch.setattr(
        loop,
        "accumulate",
        lambda o, x, *rest, **more: (taken.append(len(x.inputs)), accumulate(o, x, *rest, **more))[1],
    )
    monkeypatch.setattr(loop.optimizers, "set_learning_rate", lambda o, rate: (rates.append(rate), set_rate(o, rate)))
    fit(configure(optimizer=SGD, bptt=12, bptt_deviation=4.0), tmp_path, device="cpu")
    assert rates == pytest.approx([2.0 * length / 12 for length in taken])
    assert len(set(taken)) > 3


def test_columns_in_turn_give_the_same_gradient(tmp_path: Path, configure: Configure) -> None:
    """Three columns and then the remaining one, weighted by their numbers."""
    settings = {"dropout": 0.0, "optimizer": SGD}
    fit(configure(**settings), tmp_path / "whole", device="cpu")
    fit(configure(**settings, micro_batch_size=3), tmp_path / "parts", device="cpu")
    whole, parts = _state(tmp_path / "whole"), _state(tmp_path / "parts")
    for name, tensor in whole.items():
        if name.startswith(("model.", "carried.")):
            torch.testing.assert_close(parts[name], tensor, rtol=1e-4, atol=1e-5)


def test_bfloat16_products_leave_the_weights_in_float32(tmp_path: Path, configure: Configure) -> None:
    settings = {"dropout": 0.0, "epochs": 3}
    narrow = fit(configure(**settings, precision="bfloat16"), tmp_path / "narrow", device="cpu")
    wide = fit(configure(**settings), tmp_path / "wide", device="cpu")
    tensors = _state(narrow.path)
    assert {tensor.dtype for name, tensor in tensors.items() if name.startswith(("model.", "carried."))} == {
        torch.float32
    }
    assert narrow.test.loss != wide.test.loss
    assert narrow.test.loss == pytest.approx(wide.test.loss, rel=0.02)


def test_finetuning(tmp_path: Path, configure: Configure) -> None:
    """It starts from the best weights, averages from the first step on, and stops by itself."""
    first = fit(configure(epochs=6, optimizer=SGD, dropout=0.0, save_every=1000), tmp_path / "first", device="cpu")
    config = finetuning(first.path)
    assert config.model == RunConfig.model_validate(config.model_dump()).model
    config = override(config, ["training.epochs=40", "training.optimizer.learning_rate=1e-9"])
    still = fit(config, tmp_path / "still", device="cpu")
    assert still.test.loss == pytest.approx(first.test.loss, rel=1e-6)
    config = override(config, ["training.optimizer.learning_rate=0.5"])
    done = fit(config, tmp_path / "done", device="cpu")
    start, *epochs, _ = _rows(done.path)
    assert (start["step"], start["best"]) == (0, True)
    assert start["valid_loss"] == min(row["valid_loss"] for row in _rows(first.path)[:-1])
    assert epochs[0]["averaged_steps"] == epochs[0]["step"] > 0
    assert min(row["valid_loss"] for row in epochs) < min(row["valid_loss"] for row in _rows(first.path)[:-1])
    assert checkpoint.load(done.path).config["initial"] == str(first.path)


def test_finetuning_that_only_harms_ends_where_it_began(tmp_path: Path, configure: Configure) -> None:
    first = fit(configure(epochs=6, optimizer=SGD, dropout=0.0, save_every=1000), tmp_path / "first", device="cpu")
    harmful = ["training.epochs=2", "training.optimizer.learning_rate=30", "training.optimizer.clip=100"]
    done = fit(override(finetuning(first.path), harmful), tmp_path / "done", device="cpu")
    assert min(row["valid_loss"] for row in _rows(done.path)[1:-1]) > math.log(first.valid_perplexity)
    assert done.test.loss == first.test.loss
    assert done.valid_perplexity == first.valid_perplexity


def test_the_weights_a_run_starts_from_are_a_validation_to_be_worse_than(tmp_path: Path, configure: Configure) -> None:
    """NT-ASGD from trained weights: steps that begin by harming them are averaged from the first validation on."""
    first = fit(configure(epochs=6, optimizer=SGD, dropout=0.0, save_every=1000), tmp_path / "first", device="cpu")
    averaging = {"start": "non-monotone", "interval": 0}
    config = configure(validations=4, averaging=averaging, optimizer={**SGD, "learning_rate": 12.0}, save_every=1000)
    fit(override(config, [f"initial={first.path}", "training.epochs=1"]), tmp_path / "run", device="cpu")
    start, second, *rows, _ = _rows(tmp_path / "run")
    assert second["valid_loss"] > start["valid_loss"]
    assert second["averaged_steps"] == 0
    assert [row["averaged_steps"] for row in rows] == [row["step"] - second["step"] for row in rows]


def test_waiting_for_averages_nothing_stops(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The losses of plain SGD do not end what is to be averaged from epoch 3 on; those of the averages do."""
    rising = (1 + 0.1 * n for n in range(100))
    monkeypatch.setattr(loop, "mean_nll", lambda *_, **__: next(rising))
    settings = {"epochs": 9, "stop_interval": 0, "averaging": {"start": "epoch", "epoch": 3}, "optimizer": SGD}
    fit(configure(**settings), tmp_path, device="cpu")
    *rows, _ = _rows(tmp_path)
    assert [row["averaged_steps"] > 0 for row in rows] == [False] * 3 + [True] * 2


@pytest.mark.parametrize("capability", ["AVX512", "AVX2"])
def test_without_bfloat16_lstms_autocast_is_the_heads_alone(capability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is asked for each part, without a GPU."""
    seen: list[bool] = []

    @contextmanager
    def autocast(device: str, dtype: torch.dtype, *, enabled: bool) -> Iterator[None]:
        seen.append(enabled)
        yield

    monkeypatch.setattr(torch, "autocast", autocast)
    weight, nothing = torch.zeros(2, 2), SimpleNamespace(hidden=None, penalty=None, state=())
    head = SimpleNamespace(nll=lambda *_, **__: torch.zeros(()), penalty=lambda _: None, weight=weight)
    model: Any = nn.Module()
    model.backbone, model.head = SimpleNamespace(encode=lambda *_: nothing), head
    objective = Objective(model, mixed=True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    for device, expected in (("cuda", [False, True]), ("cpu", [capability == "AVX512", True])):
        seen.clear()
        inputs: Any = SimpleNamespace(device=SimpleNamespace(type=device))
        objective.forward(inputs, weight, ())
        assert seen == expected


def test_what_cannot_be_finetuned(tmp_path: Path, configure: Configure, corpus: Path) -> None:
    first = fit(configure(), tmp_path / "first", device="cpu")
    config = finetuning(first.path)
    with pytest.raises(RunError, match=r"does not fit its config\.json"):
        fit(override(config, ["model.backbone.hidden_size=9"]), tmp_path / "other", device="cpu")
    with pytest.raises(RunError, match="is of another model, lstm with mos; start from a run of lstm with gss"):
        fit(override(config, ["model.head.name=gss"]), tmp_path / "other", device="cpu")
    for split in ("train", "valid", "test"):
        text = (corpus / f"{split}.txt").read_text(encoding="utf-8")
        (tmp_path / f"{split}.txt").write_text(text.replace("w3", "x"), encoding="utf-8")
    with pytest.raises(RunError, match="was trained with another vocabulary than that of"):
        fit(override(config, [f"corpus={tmp_path}"]), tmp_path / "other", device="cpu")
    assert not (tmp_path / "other").exists()
    with pytest.raises(RunError, match="there is no run folder"):
        finetuning(tmp_path / "nothing")
    (first.path / "COMPLETE").unlink()
    with pytest.raises(RunError, match="is not finished"):
        finetuning(first.path)


def test_what_is_finetuned_has_seen_the_same_text(tmp_path: Path, configure: Configure, corpus: Path) -> None:
    text = shutil.copytree(corpus, tmp_path / "text")
    config = override(configure(), [f"corpus={text}"])
    first = fit(config, tmp_path / "first", device="cpu")
    (text / "train.txt").write_bytes((text / "train.txt").read_bytes() + (text / "test.txt").read_bytes())
    for initial in (finetuning(first.path), override(config, [f"initial={first.path}"])):
        with pytest.raises(RunError, match=r"text has changed since the run .*first was trained on"):
            fit(initial, tmp_path / "other", device="cpu")
    assert not (tmp_path / "other").exists()
    fit(override(config, [f"initial={first.path}", f"corpus={corpus}"]), tmp_path / "other", device="cpu")


def test_another_initial_run_is_another_configuration(tmp_path: Path, configure: Configure) -> None:
    first = fit(configure(), tmp_path / "first", device="cpu")
    config = finetuning(first.path)
    fit(config, tmp_path / "run", device="cpu")
    (tmp_path / "run" / "COMPLETE").unlink()
    fit(configure(seed=4), tmp_path / "second", device="cpu").path.rename(tmp_path / "moved")
    first.path.rename(tmp_path / "away")
    (tmp_path / "moved").rename(first.path)
    with pytest.raises(RunError, match=r"different configuration: initial_sha256 \(was '"):
        fit(config, tmp_path / "run", device="cpu")


def test_the_initial_run_may_move_or_go_once_a_run_has_begun(
    tmp_path: Path, configure: Configure, contents: Contents
) -> None:
    first, run = fit(configure(), tmp_path / "first", device="cpu").path, tmp_path / "run"
    config, before = finetuning(first), tmp_path / "before"
    fit(config, run, device="cpu")
    whole = contents(run)
    (run / "COMPLETE").unlink()
    first.rename(tmp_path / "moved")
    fit(override(config, [f"initial={tmp_path / 'moved'}"]), run, device="cpu")
    assert contents(run) == whole
    (run / "COMPLETE").unlink()
    fit(config, run, device="cpu")
    assert fit(config, run, device="cpu").path == run
    assert contents(run) == whole
    with pytest.raises(RunError, match=r"there is no run folder .*first"):
        fit(config, before, device="cpu")
    assert not before.exists()
    plain = fit(configure(), tmp_path / "plain", device="cpu").path
    with pytest.raises(RunError, match=r"different configuration: .*initial \(was None, now '.*first'\)"):
        fit(override(configure(), [f"initial={first}"]), plain, device="cpu")


def _limit_memory(monkeypatch: pytest.MonkeyPatch, *, step: int) -> None:
    """Let only two columns fit from a step on."""
    accumulate, steps = loop.accumulate, iter(range(1000))

    def limited(objective: Any, inputs: torch.Tensor, *rest: Any, columns: int | None) -> Any:
        if next(steps) >= step and (columns is None or columns > 2):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return accumulate(objective, inputs, *rest, columns=columns)

    monkeypatch.setattr(loop, "accumulate", limited)


def test_out_of_memory_names_the_remedy_and_it_helps(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    _limit_memory(monkeypatch, step=7)
    text = r"out of memory at step 7; the saved state is in .*set training\.micro_batch_size=2.* adds their gradients$"
    with pytest.raises(TrainingError, match=text):
        fit(configure(dropout=0.0), tmp_path, device="cpu")
    assert [file.name for file in (tmp_path / "trainer_state").iterdir()] == ["step-000000005.safetensors"]
    fit(configure(dropout=0.0, micro_batch_size=2), tmp_path, device="cpu")
    assert finetuning(tmp_path).training.micro_batch_size == 2  # what helped is not forgotten
    assert (tmp_path / "COMPLETE").exists()


NO_MASKS = {"dropout_embedding": 0.0, "dropout_input": 0.0, "dropout_hidden": 0.0, "dropout_output": 0.0}
DROPPING: dict[str, dict[str, Any]] = {
    "lstm": {"dropout": 0.2},
    "contexts": {"dropout": 0.0, "head": {"name": "mos", "components": 2, "context_dropout": 0.3}},
    "weights": {"backbone": {"name": "awd-lstm", "embedding_size": 4, "hidden_sizes": [7, 6], **NO_MASKS}},
    "the penalty of doc": {
        "backbone": {"name": "awd-lstm", "embedding_size": 4, "hidden_sizes": [7, 6], **NO_MASKS, "weight_drop": 0.0},
        "head": {"name": "doc", "components": [2, 1], "prior_penalty": 1.0},
    },
    "drawn predictions": {"dropout": 0.0, "loss_fraction": 0.5},
}


@pytest.mark.parametrize("settings", DROPPING.values(), ids=DROPPING)
def test_parts_of_a_batch_stay_where_gradients_depend_on_them(
    settings: dict[str, Any], tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part has its own masks and penalty: other parts are another training, and may come before the first steps.

    The whole batch by its number is the whole batch.
    """
    with monkeypatch.context() as patch:
        _limit_memory(patch, step=7)
        with pytest.raises(
            TrainingError,
            match=r"micro_batch_size=2, .* and name another folder, because gradients depend on the parts",
        ):
            fit(configure(**settings), tmp_path / "run", device="cpu")
        with pytest.raises(RunError, match=r"configuration: training\.micro_batch_size \(was 4, now 2\); give the old"):
            fit(configure(**settings, micro_batch_size=2), tmp_path / "run", device="cpu")
        with pytest.raises(TrainingError, match=r"at step 0; .*micro_batch_size=2, .* adds their gradients$"):
            fit(configure(**settings), tmp_path / "other", device="cpu")
        fit(configure(**settings, micro_batch_size=2), tmp_path / "other", device="cpu")
    fit(configure(**settings, micro_batch_size=4), tmp_path / "run", device="cpu")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError, RuntimeError])
@pytest.mark.parametrize(("place", "name"), [(torch.optim.AdamW, "step"), (loop, "mean_nll"), (loop, "save_state")])
def test_out_of_memory_anywhere_in_training(
    place: Any, name: str, error: type[Exception], tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED" if place is loop else "can't allocate memory: 8 bytes")

    with monkeypatch.context() as patch:
        patch.setattr(place, name, full)
        with pytest.raises(
            TrainingError, match=r"out of memory at step \d+; .* with training\.bptt below \d+, into a new"
        ):
            fit(configure(micro_batch_size=1), tmp_path, device="cpu")
    assert fit(configure(micro_batch_size=1), tmp_path, device="cpu").steps


def test_an_error_that_is_not_about_memory_is_left_alone(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(loop, "accumulate", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        fit(configure(), tmp_path, device="cpu")


def test_a_run_of_an_older_version_is_continued(tmp_path: Path, configure: Configure) -> None:
    """Its configuration lacks the settings that came later; they are at their defaults."""
    fit(configure(), tmp_path, device="cpu")
    file = tmp_path / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    del config["initial"], config["model"]["head"]["context_dropout"]
    for key in ("averaging", "bptt_deviation", "micro_batch_size", "precision", "compile", "stop_interval"):
        del config["training"][key]
    file.write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "COMPLETE").unlink()
    fit(configure(), tmp_path, device="cpu")
    (tmp_path / "COMPLETE").unlink()
    with pytest.raises(RunError, match=r"training\.precision \(was 'float32', now 'bfloat16'\)"):
        fit(configure(precision="bfloat16"), tmp_path, device="cpu")


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler's own look at it
def test_a_step_is_compiled_where_that_is_asked_for(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any length of segment. The trace runs without compilation to machine code, which takes half a minute."""
    asked: list[dict[str, Any]] = []
    compiles = Objective.compile

    def traced(self: Objective, **options: Any) -> None:
        asked.append(options)
        compiles(self, backend="eager", **options)

    monkeypatch.setattr(Objective, "compile", traced)
    model = {
        "backbone": {"name": "awd-lstm", "embedding_size": 4, "hidden_sizes": [7, 6]},
        "head": {"name": "mos", "components": 2, "context_dropout": 0.3},
    }
    settings = {"epochs": 1, "bptt_deviation": 3.0, "averaging": {"start": "epoch"}, **model}
    plain = fit(configure(**settings), tmp_path / "plain", device="cpu")
    assert not asked
    compiled = fit(configure(compile=True, **settings), tmp_path / "compiled", device="cpu")
    assert asked == [{"dynamic": True}]
    assert compiled.test.loss == pytest.approx(plain.test.loss, rel=1e-5)
    assert compiled.steps == plain.steps
