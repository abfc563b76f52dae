"""Training a tiny model: what it learns, what it writes, and what it refuses."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from softmax_bottleneck import checkpoint, corpora
from softmax_bottleneck.cli.doctor import check
from softmax_bottleneck.errors import ConfigurationError, OutputError, RunError, TrainingError
from softmax_bottleneck.training import configuration_of, evaluate, fit, loop, override, training_cost
from softmax_bottleneck.training.optimizer import learning_rate

from .conftest import Configure, Lines, contents, rows_of, train


def test_what_it_writes(tmp_path: Path, configure: Configure) -> None:
    config, heard = configure(epochs=3, dropout=0.0, optimizer={"learning_rate": 0.3}), Lines()
    done = train(config, tmp_path / "new" / "run", progress=heard)
    text, run = corpora.load(config.corpus), checkpoint.load(done.path)
    assert sorted(file.name for file in done.path.iterdir()) == [
        "COMPLETE", "config.json", "metrics.jsonl", "model.safetensors", "timing.jsonl", "trainer_state",
        "vocabulary.json",
    ]  # fmt: skip
    *epochs, test = rows_of(done.path)
    steps = math.ceil((len(text.split("train")) // 4 - 1) / 12)
    assert [(row["epoch"], row["step"]) for row in epochs] == [(epoch, epoch * steps) for epoch in (1, 2, 3)]
    for row in epochs:
        assert row["learning_rate"] == learning_rate(config.training.optimizer, step=row["step"] - 1, steps=3 * steps)
    best = np.minimum.accumulate([row["valid_loss"] for row in epochs])
    assert [row["best"] for row in epochs] == [True, *(best[1:] < best[:-1])]
    assert test == {"test_loss": done.test.loss, "test_perplexity": done.test.perplexity, "test_tokens": 119}
    assert evaluate(run.model, text.split("test")) == done.test
    assert done.parameters == run.model.parameter_count() == run.config["parameters"]
    assert run.config["corpus"] == {"name": str(config.corpus), "sha256": text.sha256, "vocab_size": 13}
    assert configuration_of(run.config).training == config.training
    first, line, *others = heard.lines
    assert first == f"{done.path}: {3 * steps} steps, 1,177 parameters on cpu, corpus {config.corpus}"
    assert line.startswith(f"epoch 1/3, step {steps:,}: train perplexity {epochs[0]['train_perplexity']:.2f}, valid")
    assert len(others) == 2
    seconds = [json.loads(row)["seconds"] for row in (done.path / "timing.jsonl").read_text().splitlines()]
    assert done.seconds == sum(seconds) > 0


def test_words_that_only_the_test_split_has_are_counted(tmp_path: Path, configure: Configure, corpus: Path) -> None:
    text, heard = shutil.copytree(corpus, tmp_path / "text"), Lines()
    with (text / "test.txt").open("a", encoding="utf-8") as file:
        file.write("w1 new words\n")
    train(configure(epochs=1).replace(corpus=str(text)), tmp_path / "run", progress=heard)
    assert heard.lines[0] == "2 of 15 tokens do not occur in the training text"


def test_the_best_weights_are_kept_and_every_validation_can_be(tmp_path: Path, configure: Configure) -> None:
    """A learning rate that is so high after the warm-up that the first epochs are better than the last."""
    wild = {"learning_rate": 1.0, "warmup_steps": 75, "schedule": "constant"}
    config = configure(epochs=5, optimizer=wild, keep_checkpoints=True)
    done = train(config, tmp_path / "run")
    *rows, _ = rows_of(done.path)
    valid, losses = corpora.load(config.corpus).split("valid"), [row["valid_loss"] for row in rows]
    assert losses[-1] > min(losses) + 0.01
    assert evaluate(checkpoint.load(done.path).model, valid).loss == min(losses)
    folders = sorted((done.path / checkpoint.CHECKPOINTS).iterdir())
    assert [folder.name for folder in folders] == [f"step-{row['step']:09d}" for row in rows]
    for folder, row in zip(folders, rows, strict=True):
        assert evaluate(checkpoint.load(folder).model, valid).loss == row["valid_loss"]
        assert rows_of(folder)[-1] == row
    assert check(done.path).startswith("a complete run")
    (folders[1] / "vocabulary.json").write_text("[]")
    with pytest.raises(RunError, match=r"vocabulary\.json has changed since the run was finished"):
        check(done.path)


@pytest.mark.parametrize("unigram", [True, False])
def test_the_bias_starts_at_the_log_frequencies(unigram: bool, tmp_path: Path, configure: Configure) -> None:
    config = configure(epochs=1, unigram_bias=unigram, optimizer={"learning_rate": 1e-12, "warmup_steps": 0})
    run = checkpoint.load(train(config, tmp_path).path)
    ids = corpora.load(config.corpus).split("train")
    counts = np.bincount(ids[: len(ids) // 4 * 4], minlength=13) + 1
    expected = np.log(counts / counts.sum()) if unigram else np.zeros(13)
    np.testing.assert_allclose(run.model.head.bias.detach().numpy(), expected, atol=1e-6)


def test_the_seed_decides_everything_and_a_finished_run_is_only_read(tmp_path: Path, configure: Configure) -> None:
    """Not the random state that happens to be there, which is left as it was found."""
    torch.manual_seed(1)
    done = train(configure(), tmp_path / "one")
    torch.manual_seed(2)
    before = torch.get_rng_state()
    train(configure(), tmp_path / "two")
    assert torch.equal(torch.get_rng_state(), before)
    train(configure(seed=4), tmp_path / "three")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert contents(tmp_path / "one")["model.safetensors"] != contents(tmp_path / "three")["model.safetensors"]
    times = {file: file.stat().st_mtime_ns for file in done.path.rglob("*")}
    assert train(configure(), done.path) == done
    assert {file: file.stat().st_mtime_ns for file in done.path.rglob("*")} == times


def test_another_configuration_names_the_difference(tmp_path: Path, corpus: Path, configure: Configure) -> None:
    copy = shutil.copytree(corpus, tmp_path / "corpus")
    config, run = configure().replace(corpus=str(copy)), tmp_path / "run"
    train(config, run)
    for finished in (True, False):
        if not finished:
            (run / "COMPLETE").unlink()
        with pytest.raises(RunError, match=r"different configuration: training\.epochs \(was 2, now 1\); give the old"):
            train(config.replace(training={"epochs": 1}), run)
    others = {"bptt": 13, "validations": 2, "precision": "bfloat16", "save_every": 7, "compile": True}
    with pytest.raises(RunError) as refused:
        train(config.replace(seed=4, training=others, model={"head": {"components": 3}}), run)
    for text in (
        "seed (was 3, now 4)",
        "model.head.components (was 2, now 3)",
        *(f"training.{key} (" for key in others),
    ):
        assert text in str(refused.value)
    with (copy / "test.txt").open("a") as file:
        file.write("w1\n")
    with pytest.raises(RunError, match=r"different configuration: corpus\.sha256 \(was '"):
        train(config, run)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("thesis.tex", "years of work", "is not empty and does not hold a run; name another folder"),
        ("config.json", '{"model_type": "gpt2"}', r"config\.json was not written by this tool"),
    ],
)
def test_a_folder_of_someone_else(name: str, text: str, said: str, tmp_path: Path, configure: Configure) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match=said):
        train(configure(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_wrong_request_leaves_no_folder(tmp_path: Path, configure: Configure, monkeypatch: Any) -> None:
    with pytest.raises(TrainingError, match="too few for batch_size=1000"):
        train(configure(batch_size=1000), tmp_path / "run")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: None)
    with pytest.raises(ConfigurationError, match="torch does not see the device cuda: use device='cpu'"):
        fit(configure(), tmp_path / "run", device="cuda")
    assert not (tmp_path / "run").exists()


SIZES = (
    "model.backbone.hidden_size", "model.backbone.embedding_size", "model.backbone.layers", "model.head.components",
    "model.head.embedding_size", "model.head.context_rank", "training.epochs", "training.bptt_deviation",
    "training.batch_size", "training.validations", "training.optimizer.warmup_steps",
)  # fmt: skip


@pytest.mark.parametrize("key", SIZES)
def test_a_size_beyond_the_machine_is_one_sentence(key: str, tmp_path: Path, configure: Configure) -> None:
    """Weights of petabytes are never allocated, and no loop runs that often."""
    for size in (10**12, 10**30):
        with pytest.raises(ConfigurationError) as refused:
            train(override(configure(), [f"{key}={size}"]), tmp_path / "run")
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


BROKEN: dict[str, tuple[Any, str, int, Callable[[Any], Any]]] = {
    "the loss became nan at step 2": (loop, "accumulate", 2, lambda result: (result[0] * math.nan, result[1])),
    "the loss became 1000 at step 2": (loop, "accumulate", 2, lambda result: (result[0] * 0 + 1000, result[1])),
    "the gradient's norm became inf at step 2": (torch.nn.utils, "clip_grad_norm_", 2, lambda norm: norm * math.inf),
    "the validation loss became nan at step 13": (loop, "mean_nll", 0, lambda loss: math.nan),
}
"""What is wrong, the function that returns it, the number of its call, and how its result is changed."""


def _break(patch: pytest.MonkeyPatch, place: Any, name: str, call: int, change: Callable[[Any], Any]) -> None:
    function, calls = getattr(place, name), iter(range(10**6))

    def broken(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        return change(result) if next(calls) == call else result

    patch.setattr(place, name, broken)


def test_a_loss_that_explodes_before_a_state_is_saved(tmp_path: Path, configure: Configure) -> None:
    config = configure(epochs=1, optimizer={"learning_rate": 1e9})
    with pytest.raises(TrainingError, match=r"; no state was saved before: lower training\.optimizer\.learning_rate"):
        train(config, tmp_path / "run")


def test_a_number_that_is_not_finite_or_absurd(tmp_path: Path, configure: Configure) -> None:
    """The step is not applied and nothing of it is saved: without the fault, the same command continues."""
    config = configure(epochs=1, save_every=1)
    whole = train(config, tmp_path / "whole")
    remedy = r"lower training\.optimizer\.learning_rate \(now 0\.02\) or training\.optimizer\.clip \(now 1\)"
    for number, (text, fault) in enumerate(BROKEN.items()):
        run = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as patch:
            _break(patch, *fault)
            with pytest.raises(TrainingError, match=rf"^{text}; the last saved state .*: {remedy} and train into a"):
                train(config, run)
        assert not (run / "model.safetensors").exists()
        with pytest.raises(RunError, match="has no best weights yet, because it stopped before its first validation"):
            train(config.model_copy(update={"initial": str(run)}), tmp_path / "next")
        train(config, run)
        assert contents(run) == contents(whole.path)


def test_a_full_disk_loses_nothing(tmp_path: Path, configure: Configure) -> None:
    train(configure(epochs=1), tmp_path / "whole")
    fsync = os.fsync
    for write in (1, 9):
        run, calls = tmp_path / str(write), iter(range(10**6))

        def full(descriptor: int, write: int = write, calls: Iterator[int] = calls) -> None:
            if next(calls) >= 2 * write:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(descriptor)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OutputError, match=r"cannot write .*: the disk is full: free some space"):
                train(configure(epochs=1), run)
        assert not [name for name in contents(run) if name.endswith(".part") or name == "COMPLETE"]
        train(configure(epochs=1), run)
        assert contents(run) == contents(tmp_path / "whole")


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
