"""Training a tiny model: what it learns, what it writes, and what it refuses."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from softmax_bottleneck import corpora, heads
from softmax_bottleneck.core.machine import resolve_device
from softmax_bottleneck.core.progress import Progress
from softmax_bottleneck.errors import ConfigurationError, OutputError, RunError, TrainingError
from softmax_bottleneck.language_models import checkpoint
from softmax_bottleneck.language_models.model import LanguageModel
from softmax_bottleneck.training import RunConfig, evaluate, fit, loop
from softmax_bottleneck.training.configuration_file import configuration_of
from softmax_bottleneck.training.optimizer import learning_rate

Configure = Callable[..., RunConfig]
Contents = Callable[[Path], dict[str, bytes]]


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("head", heads.REGISTRY)
def test_it_learns(head: str, tmp_path: Path, configure: Configure) -> None:
    """The unigram bias alone gives about 13 choices; two follow each word, and nine words a line."""
    settings = {"moc": {"components": 2}, "mos": {"components": 2}, "lms-plif": {"knots": 100}}.get(head, {})
    config = configure(head={"name": head, **settings}, epochs=8, dropout=0.0, optimizer={"learning_rate": 0.05})
    done = fit(config, tmp_path / "run", device="cpu")
    losses = [row["train_loss"] for row in _rows(done.path)[:-1]]
    assert losses[0] > math.log(8)
    assert losses[-1] < math.log(4)
    assert done.test.perplexity < 5


def test_what_it_writes(tmp_path: Path, configure: Configure) -> None:
    config = configure(epochs=3, dropout=0.0, optimizer={"learning_rate": 0.3})
    lines: list[str] = []

    class Lines(Progress):
        def line(self, text: str) -> None:
            lines.append(text)

    done = fit(config, tmp_path / "new" / "run", device="cpu", progress=Lines())
    text = corpora.load(config.corpus)
    run = checkpoint.load(done.path)
    assert sorted(file.name for file in done.path.iterdir()) == [
        "COMPLETE",
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "timing.jsonl",
        "trainer_state",
        "vocabulary.json",
    ]
    *epochs, test = _rows(done.path)
    steps = math.ceil((len(text.split("train")) // 4 - 1) / 12)
    assert [row["epoch"] for row in epochs] == [1, 2, 3]
    assert [row["step"] for row in epochs] == [steps, 2 * steps, 3 * steps]
    for row in epochs:
        assert row["train_perplexity"] == math.exp(row["train_loss"])
        assert row["valid_perplexity"] == math.exp(row["valid_loss"])
        assert row["learning_rate"] == learning_rate(config.training.optimizer, step=row["step"] - 1, steps=3 * steps)
    best = np.minimum.accumulate([row["valid_loss"] for row in epochs])
    assert [row["best"] for row in epochs] == [True, *(best[1:] < best[:-1])]
    assert test == {"test_loss": done.test.loss, "test_perplexity": done.test.perplexity, "test_tokens": 119}
    assert evaluate(run.model, text.split("test")) == done.test
    assert done.parameters == run.model.parameter_count() == run.config["parameters"]
    assert run.vocabulary.tokens == text.vocabulary.tokens
    assert run.config["corpus"] == {"name": str(config.corpus), "sha256": text.sha256, "vocab_size": 13}
    assert configuration_of(run.config).training == config.training
    assert run.config["versions"]["torch"] == torch.__version__
    head = {"name": "mos", "components": 2, "embedding_size": 4, "bias": True, "context_dropout": 0.0}
    head |= {"residual": False, "context_rank": None}
    assert run.config["model"]["head"] == head
    assert lines.pop(0) == f"{done.path}: {3 * steps} steps, 1,177 parameters on cpu, corpus {config.corpus}"
    assert len(lines) == 3
    train = f"train perplexity {epochs[0]['train_perplexity']:.2f}"
    assert lines[0].startswith(f"epoch 1/3, step {steps:,}: {train}, valid perplexity")
    seconds = [json.loads(row)["seconds"] for row in (done.path / "timing.jsonl").read_text().splitlines()]
    assert done.seconds == sum(seconds) > 0


def test_the_best_weights_are_kept(tmp_path: Path, configure: Configure) -> None:
    """A learning rate that is so high after the warm-up that the first epochs are better than the last."""
    config = configure(epochs=5, optimizer={"learning_rate": 1.0, "warmup_steps": 75, "schedule": "constant"})
    done = fit(config, tmp_path, device="cpu")
    rows = _rows(tmp_path)[:-1]
    losses = [row["valid_loss"] for row in rows]
    assert losses[-1] > min(losses) + 0.01
    valid = evaluate(checkpoint.load(done.path).model, corpora.load(config.corpus).split("valid"))
    assert valid.loss == min(losses)


def test_it_is_plain_gradient_descent(tmp_path: Path, configure: Configure) -> None:
    """The same updates written out: gathered `log_prob`, autograd, θ ← θ − η g, clipped, the state carried on."""
    clip, rate = 0.3, 0.5
    config = configure(
        dropout=0.0,
        epochs=2,
        unigram_bias=False,
        optimizer={
            "name": "sgd",
            "schedule": "constant",
            "warmup_steps": 0,
            "learning_rate": rate,
            "clip": clip,
            "weight_decay": 0.0,
        },
    )
    done = fit(config, tmp_path / "run", device="cpu")
    assert all(row["best"] for row in _rows(done.path)[:-1])  # so the last weights are the ones kept
    text = corpora.load(config.corpus)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model = LanguageModel(config.model, vocab_size=13)
    ids = torch.from_numpy(text.split("train"))
    length = len(ids) // 4
    data = torch.stack([ids[i * length : (i + 1) * length] for i in range(4)], 1)
    for _ in range(2):
        state = None
        for start in range(0, length - 1, 12):
            inputs, targets = data[start : start + 12][: length - 1 - start], data[start + 1 : start + 13]
            hidden, state = model.hidden(inputs, state)
            state = tuple(part.detach() for part in state)
            loss = -model.head.log_prob(hidden).gather(-1, targets.unsqueeze(-1)).mean()
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter -= rate * min(1.0, clip / norm) * gradient
    found = checkpoint.model_tensors(checkpoint.load(done.path).model)
    expected = checkpoint.model_tensors(model)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        start_weights = checkpoint.model_tensors(LanguageModel(config.model, vocab_size=13))
    assert all((found[name] - start_weights[name]).abs().max() > 1e-3 for name in found)


@pytest.mark.parametrize("unigram", [True, False])
def test_the_bias_starts_at_the_log_frequencies(unigram: bool, tmp_path: Path, configure: Configure) -> None:
    config = configure(epochs=1, unigram_bias=unigram, optimizer={"learning_rate": 1e-12, "warmup_steps": 0})
    run = checkpoint.load(fit(config, tmp_path, device="cpu").path)
    train = corpora.load(config.corpus).split("train")
    counts = np.bincount(train[: len(train) // 4 * 4], minlength=13) + 1
    expected = np.log(counts / counts.sum()) if unigram else np.zeros(13)
    assert run.model.head.bias is not None
    np.testing.assert_allclose(run.model.head.bias.detach().numpy(), expected, atol=1e-6)


def test_a_head_without_bias(tmp_path: Path, configure: Configure) -> None:
    run = checkpoint.load(fit(configure(head={"name": "softmax", "bias": False}, epochs=1), tmp_path).path)
    assert run.model.head.bias is None


def test_the_seed_decides_everything(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    """Not the random state that happens to be there, which is left as it was found."""
    torch.manual_seed(1)
    fit(configure(), tmp_path / "one", device="cpu")
    torch.manual_seed(2)
    before = torch.get_rng_state()
    fit(configure(), tmp_path / "two", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    fit(configure(seed=4), tmp_path / "three", device="cpu")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert contents(tmp_path / "one")["model.safetensors"] != contents(tmp_path / "three")["model.safetensors"]


def test_a_finished_run_is_only_read(tmp_path: Path, configure: Configure) -> None:
    done = fit(configure(), tmp_path, device="cpu")
    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    assert fit(configure(), tmp_path, device="cpu") == done
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == times


@pytest.mark.parametrize("finished", [True, False])
def test_another_configuration_names_the_difference(finished: bool, tmp_path: Path, configure: Configure) -> None:
    fit(configure(), tmp_path, device="cpu")
    if not finished:
        (tmp_path / "COMPLETE").unlink()
    with pytest.raises(RunError, match=r"different configuration: training\.epochs \(was 2, now 1\); give the old"):
        fit(configure(epochs=1), tmp_path)
    with pytest.raises(RunError, match=r"model\.head\.components \(was 2, now 3\)"):
        fit(configure(head={"name": "mos", "components": 3}), tmp_path)
    with pytest.raises(RunError, match=r"seed \(was 3, now 4\); training\.bptt \(was 12, now 13\)"):
        fit(configure(seed=4, bptt=13), tmp_path)
    changed = {"bptt": 13, "validations": 2, "precision": "bfloat16", "save_every": 7, "compile": True}
    with pytest.raises(RunError) as refused:
        fit(configure(seed=4, **changed), tmp_path)
    assert all(f"{key} (was" in str(refused.value) for key in ("seed", *(f"training.{key}" for key in changed)))


def test_a_changed_corpus_is_another_configuration(tmp_path: Path, corpus: Path, configure: Configure) -> None:
    copy = shutil.copytree(corpus, tmp_path / "corpus")
    config = configure().model_copy(update={"corpus": str(copy)})
    fit(config, tmp_path / "run", device="cpu")
    with (copy / "test.txt").open("a") as file:
        file.write("w1\n")
    with pytest.raises(RunError, match=r"different configuration: corpus\.sha256 \(was '"):
        fit(config, tmp_path / "run")


def test_a_folder_of_someone_elses(tmp_path: Path, configure: Configure) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="is not empty and does not hold a run; name another folder"):
        fit(configure(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_another_tools_config(tmp_path: Path, configure: Configure) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(RunError, match=r"config\.json was not written by this tool"):
        fit(configure(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]


def test_an_empty_folder_will_do(tmp_path: Path, configure: Configure) -> None:
    (tmp_path / "run").mkdir()
    assert fit(configure(epochs=1), tmp_path / "run", device="cpu").path == tmp_path / "run"


def test_a_finished_run_that_was_changed(tmp_path: Path, configure: Configure) -> None:
    fit(configure(), tmp_path, device="cpu")
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("loss", "lass"))
    with pytest.raises(RunError, match=r"metrics\.jsonl has changed since the run was finished"):
        fit(configure(), tmp_path)
    metrics.unlink()
    with pytest.raises(RunError, match=r"lost its file metrics\.jsonl"):
        fit(configure(), tmp_path)


def test_a_text_too_short_leaves_no_folder(tmp_path: Path, configure: Configure) -> None:
    with pytest.raises(TrainingError, match="too few for batch_size=1000"):
        fit(configure(batch_size=1000), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_cuda_leaves_no_folder(tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match="torch does not see a CUDA device: use device='cpu'"):
        fit(configure(), tmp_path / "run", device="cuda")
    assert not (tmp_path / "run").exists()
    assert resolve_device("auto") == resolve_device("cpu") == "cpu"


@pytest.mark.parametrize("head", ["softmax", "mos", "lms-plif"])
def test_a_loss_that_is_not_finite_or_absurd(head: str, tmp_path: Path, configure: Configure) -> None:
    settings = {"knots": 100} if head == "lms-plif" else {}
    config = configure(
        head={"name": head, **settings}, save_every=1, optimizer={"learning_rate": 1e30, "warmup_steps": 0}
    )
    text = (
        r"became (nan|inf|\d\S*) at step \d+; the last saved state is in .*: lower training\.optimizer\."
        r"learning_rate \(now 1e\+30\) or training\.optimizer\.clip \(now 1\)"
    )
    with pytest.raises(TrainingError, match=text):
        fit(config, tmp_path, device="cpu")
    (state,) = (tmp_path / "trainer_state").iterdir()
    with pytest.raises(TrainingError, match=text):
        fit(config, tmp_path, device="cpu")
    assert state.exists()
    assert not (tmp_path / "COMPLETE").exists()
    with pytest.raises(RunError, match="has no best weights yet, because it stopped before its first validation"):
        fit(config.model_copy(update={"initial": str(tmp_path)}), tmp_path / "next", device="cpu")


def test_a_loss_that_explodes_to_a_number(tmp_path: Path, configure: Configure) -> None:
    """Training diverges after some epochs: the error names the step, and the best weights so far can be used."""
    fine = {"name": "sgd", "learning_rate": 0.5, "clip": 0.25}
    config = configure(epochs=3, optimizer=fine)
    step, calls = torch.optim.SGD.step, iter(range(10**6))
    per_epoch = fit(config, tmp_path / "whole", device="cpu").steps // 3

    def wild(self: torch.optim.SGD, *rest: Any) -> None:
        if next(calls) > per_epoch:
            self.param_groups[0]["lr"] = 1e4
        step(self, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", wild)
        text = rf"the loss became \d[^ ]* at step {per_epoch + 2};.* --set initial=.*run starts from its best weights"
        with pytest.raises(TrainingError, match=text):
            fit(config, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "COMPLETE").exists()
    again = config.model_copy(update={"initial": str(tmp_path / "run")})
    assert fit(again, tmp_path / "again", device="cpu").valid_perplexity < 30
    with pytest.raises(RunError, match="is not finished"):
        checkpoint.load(tmp_path / "run")


@pytest.mark.parametrize("validations", [1, 50])
def test_a_last_step_that_explodes_shows_in_the_validation(
    validations: int, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What blew up is never kept as the best weights, nor as a state."""
    step, calls = torch.optim.SGD.step, iter(range(10**6))
    config = configure(epochs=2, validations=validations, optimizer={"name": "sgd", "learning_rate": 0.5, "clip": 0.25})
    per_epoch = fit(config, tmp_path / "whole", device="cpu").steps // 2

    def wild(self: torch.optim.SGD, *rest: Any) -> None:
        if next(calls) == 2 * per_epoch - 1:
            self.param_groups[0]["lr"] = 1e30
        step(self, *rest)

    monkeypatch.setattr(torch.optim.SGD, "step", wild)
    text = (
        rf"the validation loss became \S+ at step {2 * per_epoch}; .* --set initial=.*run starts from its best weights"
    )
    with pytest.raises(TrainingError, match=text):
        fit(config, tmp_path / "run", device="cpu")
    assert all(weight.abs().max() < 100 for weight in load_file(tmp_path / "run" / "model.safetensors").values())
    monkeypatch.setattr(torch.optim.SGD, "step", step)
    assert fit(config, tmp_path / "run", device="cpu").valid_perplexity == pytest.approx(
        fit(config, tmp_path / "whole", device="cpu").valid_perplexity
    )


def test_a_first_validation_that_explodes_keeps_no_weights(tmp_path: Path, configure: Configure) -> None:
    wild = {"name": "sgd", "learning_rate": 1e30, "schedule": "constant", "warmup_steps": 0}
    with pytest.raises(TrainingError, match=r"the validation loss became .* at step 1; .* train into a new folder$"):
        fit(configure(validations=50, optimizer=wild), tmp_path, device="cpu")
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number(
    value: float, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulate, steps = loop.accumulate, iter(range(100))

    def broken(*rest: Any, **options: Any) -> Any:
        found = accumulate(*rest, **options)
        return found[0] * (value if next(steps) == 3 else 1.0), found[1]

    monkeypatch.setattr(loop, "accumulate", broken)
    with pytest.raises(TrainingError, match=rf"the loss became {value} at step 3; the last saved state is in"):
        fit(configure(save_every=1), tmp_path, device="cpu")
    assert [file.name for file in (tmp_path / "trainer_state").iterdir()] == ["step-000000003.safetensors"]


def test_a_gradient_that_is_not_finite_is_not_applied(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of that step is still fine; the weights after it would not be, and might be saved."""
    norms = iter([1.0, 1.0, math.inf])
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(next(norms)))
    with pytest.raises(TrainingError, match="the gradient's norm became inf at step 2"):
        fit(configure(save_every=1), tmp_path, device="cpu")
    assert [file.name for file in (tmp_path / "trainer_state").iterdir()] == ["step-000000002.safetensors"]


@pytest.mark.parametrize("write", [1, 2, 4, 9])
def test_a_full_disk_loses_nothing(
    write: int, tmp_path: Path, configure: Configure, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(configure(), tmp_path / "whole", device="cpu")
    fsync, calls = os.fsync, iter(range(10**6))

    def full(descriptor: int) -> None:
        if next(calls) >= 2 * write:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match=r"cannot write .*: the disk is full: free some space"):
            fit(configure(), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "COMPLETE").exists()
    assert not [name for name in contents(tmp_path / "run") if name.endswith(".part")]
    fit(configure(), tmp_path / "run", device="cpu")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_place_that_cannot_be_written(tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "run", tmp_path / "file"):
        with pytest.raises(OutputError, match=f"cannot write {out}: a file stands where a folder is needed"):
            fit(configure(), out)

    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(OutputError, match=r"run: the place is not writable: name another one"):
        fit(configure(), tmp_path / "run")


def test_every_validation_can_be_kept(tmp_path: Path, configure: Configure) -> None:
    config = configure(epochs=2, validations=2, keep_checkpoints=True)
    done = fit(config, tmp_path / "run", device="cpu")
    *rows, _ = _rows(done.path)
    kept = sorted((done.path / checkpoint.CHECKPOINTS).iterdir())
    assert [folder.name for folder in kept] == [f"step-{row['step']:09d}" for row in rows]
    valid = corpora.load(config.corpus).split("valid")
    for folder, row in zip(kept, rows, strict=True):
        assert evaluate(checkpoint.load(folder).model, valid).loss == row["valid_loss"]
        assert _rows(folder)[-1] == row
    best = [folder for folder, row in zip(kept, rows, strict=True) if row["best"]][-1]
    assert (best / "model.safetensors").read_bytes() == (done.path / "model.safetensors").read_bytes()
