"""Averaging, early stopping, starting from another run, and columns in turn, as whole runs show them."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from softmax_bottleneck import checkpoint, corpora
from softmax_bottleneck.errors import RunError, TrainingError
from softmax_bottleneck.language_models.model import LanguageModel
from softmax_bottleneck.training import finetuning, loop, override
from softmax_bottleneck.training.epochs import Epochs
from softmax_bottleneck.training.objective import Objective
from softmax_bottleneck.training.optimizer import is_non_monotone

from .conftest import SGD, Configure, contents, rows_of, train

FAST = {**SGD, "learning_rate": 12.0}


def _state(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = (folder / "trainer_state").iterdir()
    return load_file(file)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"micro_batch_size": 3},  # three columns and then the remaining one, weighted by their numbers
        {"bptt_deviation": 4.0},
        {"averaging": {"start": "epoch", "epoch": 1}},
        {"validations": 3},
        {"compile": True},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler's own look at it
def test_it_is_plain_gradient_descent(settings: Any, tmp_path: Path, configure: Configure, monkeypatch: Any) -> None:
    """The same updates written out: gathered `log_prob`, autograd, θ ← θ − η g, clipped, the state carried on.

    A segment of another length scales the learning rate; averages are those of the weights after every step from the
    second epoch on, and the steps go on as before. A step is compiled on request, for any length of segment: here
    without compilation to machine code, which takes half a minute.
    """
    requests, compiles = [], Objective.compile

    def traced(self: Objective, **options: Any) -> None:
        requests.append(options)
        compiles(self, backend="eager", **options)

    monkeypatch.setattr(Objective, "compile", traced)
    clip, rate = 0.3, 0.5
    plain = {"dropout": 0.0, "epochs": 2, "unigram_bias": False}
    optimizer = {**SGD, "learning_rate": rate, "clip": clip, "weight_decay": 0.0}
    config = configure(**plain, optimizer=optimizer, **settings)
    run, text = train(config, tmp_path / "run").path, corpora.load(config.corpus)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model = LanguageModel(config.model, vocab_size=13)
    ids, segments = torch.from_numpy(text.split("train")), Epochs(text, config.training, seed=config.seed, lines=None)
    length, after = len(ids) // 4, []
    data = torch.stack([ids[i * length : (i + 1) * length] for i in range(4)], 1)
    for epoch in range(2):
        state, start = None, 0
        for size in segments.lengths(epoch):
            hidden, state = model.hidden(data[start : start + size], state)
            state = tuple(part.detach() for part in state)
            loss = -model.head.log_prob(hidden).gather(-1, data[start + 1 : start + size + 1, :, None]).mean()
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
            scale = min(1.0, clip / norm) * (size / 12 if "bptt_deviation" in settings else 1)
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter -= rate * scale * gradient
            start += size
            after.append({name: weight.clone() for name, weight in checkpoint.model_tensors(model).items()})
    found, first = _state(run), len(segments.lengths(0))
    for name, weight in after[-1].items():
        torch.testing.assert_close(found[f"model.{name}"], weight, rtol=0, atol=1e-5)
        assert (weight - after[0][name]).abs().max() > 1e-3
    assert requests == [{"dynamic": True}] * ("compile" in settings)
    *rows, _ = rows_of(run)
    if "averaging" in settings:
        assert [row["averaged_steps"] for row in rows] == [0, rows[0]["step"]]
        assert rows[-1]["best"]
        best = checkpoint.read_tensors(run / "model.safetensors")
        for name, weight in best.items():
            assert torch.equal(found[f"average.{name}"], weight)
            mean = torch.stack([each[name] for each in after[first:]]).mean(0)
            torch.testing.assert_close(weight, mean, rtol=0, atol=1e-5)


def test_validations_within_an_epoch(tmp_path: Path, configure: Configure) -> None:
    """Each scores the weights of its step, and the loss of the steps since the last; the steps are the same."""
    config = configure(validations=3, dropout=0.0, optimizer=SGD)
    train(config, tmp_path / "often")
    train(configure(dropout=0.0, optimizer=SGD), tmp_path / "once")
    often, once = rows_of(tmp_path / "often")[:-1], rows_of(tmp_path / "once")[:-1]
    steps = once[0]["step"]
    assert [(row["epoch"], row["step"]) for row in often] == [
        (epoch + 1, epoch * steps + -(-steps * part // 3)) for epoch in range(2) for part in (1, 2, 3)
    ]
    assert [row["valid_loss"] for row in often[2::3]] == [row["valid_loss"] for row in once]
    lengths = np.full(steps, config.training.bptt)
    lengths[-1] = len(corpora.load(config.corpus).split("train")) // config.training.batch_size - 1 - lengths[:-1].sum()
    tokens = [sum(part) for part in np.split(lengths, [row["step"] for row in often[:2]])]
    for part, row in zip((often[:3], often[3:]), once, strict=True):
        losses = [each["train_loss"] for each in part]
        assert np.average(losses, weights=tokens) == pytest.approx(row["train_loss"], rel=1e-12)


def test_averaging_can_start_and_training_stop_within_an_epoch(tmp_path: Path, configure: Configure) -> None:
    settings = {"epochs": 16, "validations": 4, "optimizer": FAST, "save_every": 1000}
    done = train(configure(**settings, averaging={"start": "non-monotone", "interval": 1}), tmp_path / "averaged")
    *rows, _ = rows_of(tmp_path / "averaged")
    kept = next(row for row in reversed(rows) if row["best"])
    assert (done.steps, done.averaged_steps) == (rows[-1]["step"], kept["averaged_steps"])
    assert done.valid_perplexity == kept["valid_perplexity"]
    fired = next(n for n in range(len(rows)) if is_non_monotone([row["valid_loss"] for row in rows[: n + 1]], 1))
    assert (fired + 1) % 4  # not at an epoch's end
    assert [row["averaged_steps"] for row in rows] == [max(0, row["step"] - rows[fired]["step"]) for row in rows]
    train(configure(**settings, stop_interval=1), tmp_path / "stopped")
    *stopped, _ = rows_of(tmp_path / "stopped")
    assert [row["valid_loss"] for row in stopped] == [row["valid_loss"] for row in rows[: fired + 1]]


def test_bfloat16_products_leave_the_weights_in_float32(tmp_path: Path, configure: Configure) -> None:
    narrow = train(configure(dropout=0.0, precision="bfloat16"), tmp_path / "narrow")
    wide = train(configure(dropout=0.0), tmp_path / "wide")
    tensors = [tensor for name, tensor in _state(narrow.path).items() if name.startswith(("model.", "carried."))]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    assert narrow.test.loss != wide.test.loss
    assert narrow.test.loss == pytest.approx(wide.test.loss, rel=0.02)


def test_finetuning(tmp_path: Path, configure: Configure) -> None:
    """It starts from the best weights and averages from the first step; one that only harms ends where it began."""
    first = train(configure(epochs=6, optimizer=SGD, dropout=0.0, save_every=1000), tmp_path / "first")
    config = override(finetuning(first.path), ["training.epochs=10", "training.optimizer.learning_rate=0.5"])
    done = train(config, tmp_path / "done")
    start, *epochs, _ = rows_of(done.path)
    best = min(row["valid_loss"] for row in rows_of(first.path)[:-1])
    assert (start["step"], start["best"], start["valid_loss"]) == (0, True, best)
    assert epochs[0]["averaged_steps"] == epochs[0]["step"] > 0
    assert min(row["valid_loss"] for row in epochs) < best
    assert checkpoint.load(done.path).config["initial"] == str(first.path)
    harmful = ["training.epochs=2", "training.optimizer.learning_rate=30", "training.optimizer.clip=100"]
    harmed = train(override(config, harmful), tmp_path / "harmed")
    assert min(row["valid_loss"] for row in rows_of(harmed.path)[1:-1]) > math.log(first.valid_perplexity)
    assert (harmed.test.loss, harmed.valid_perplexity) == (first.test.loss, first.valid_perplexity)
    assert harmed.averaged_steps == 0  # of the weights that were kept
    # The weights that NT-ASGD starts from are a validation to be worse than.
    averaging = {"start": "non-monotone", "interval": 0}
    config = configure(epochs=1, validations=4, averaging=averaging, optimizer=FAST, save_every=1000)
    train(config.replace(initial=str(first.path)), tmp_path / "nt-asgd")
    start, second, *rows, _ = rows_of(tmp_path / "nt-asgd")
    assert second["valid_loss"] > start["valid_loss"]
    assert second["averaged_steps"] == 0
    assert [row["averaged_steps"] for row in rows] == [row["step"] - second["step"] for row in rows]


def test_waiting_for_averages_nothing_stops(tmp_path: Path, configure: Configure, monkeypatch: Any) -> None:
    """The losses of plain SGD do not end what is to be averaged from epoch 3 on; those of the averages do."""
    rising = (1 + 0.1 * n for n in range(100))
    monkeypatch.setattr(loop, "mean_nll", lambda *_, **__: next(rising))
    averaging = {"start": "epoch", "epoch": 3}
    train(configure(epochs=9, stop_interval=0, averaging=averaging, optimizer=SGD), tmp_path)
    *rows, _ = rows_of(tmp_path)
    assert [row["averaged_steps"] > 0 for row in rows] == [False] * 3 + [True] * 2


def test_what_cannot_be_finetuned(tmp_path: Path, configure: Configure, corpus: Path) -> None:
    """A run of another model, vocabulary or text, or one that is missing or unfinished."""
    text, other = shutil.copytree(corpus, tmp_path / "text"), tmp_path / "other"
    first = train(configure().replace(corpus=str(text)), tmp_path / "first")
    config = finetuning(first.path)
    with pytest.raises(RunError, match=r"of other sizes, .*: 'backbone\..*' is torch\.float32 of shape \(.*\), not "):
        train(override(config, ["model.backbone.hidden_size=9"]), other)
    with pytest.raises(RunError, match=r"of other sizes, .*: tensor 'head\.bias' is missing or unexpected"):
        train(override(config, ["model.head.bias=false"]), other)
    with pytest.raises(RunError, match="is of another model, lstm with mos; start from a run of lstm with gss"):
        train(override(config, ["model.head.name=gss"]), other)
    for split in ("train", "valid", "test"):
        words = (corpus / f"{split}.txt").read_text(encoding="utf-8")
        (tmp_path / f"{split}.txt").write_text(words.replace("w3", "x"), encoding="utf-8")
    with pytest.raises(RunError, match="was trained with another vocabulary than that of"):
        train(override(config, [f"corpus={tmp_path}"]), other)
    (text / "train.txt").write_bytes((text / "train.txt").read_bytes() + (text / "test.txt").read_bytes())
    with pytest.raises(RunError, match=r"text has changed since the run .*first was trained on"):
        train(config, other)
    assert not other.exists()
    with pytest.raises(RunError, match=r"the run folder .* does not exist"):
        finetuning(tmp_path / "nothing")
    (first.path / "COMPLETE").unlink()
    with pytest.raises(RunError, match="is not finished"):
        finetuning(first.path)


def test_the_initial_run_may_move_or_go_once_a_run_has_begun(tmp_path: Path, configure: Configure) -> None:
    """But another in its place is another configuration."""
    first, run = train(configure(), tmp_path / "first").path, tmp_path / "run"
    config = finetuning(first)
    train(config, run)
    whole = contents(run)
    first.rename(tmp_path / "moved")
    for initial in (tmp_path / "moved", first):
        (run / "COMPLETE").unlink()
        train(config.replace(initial=str(initial)), run)
        assert contents(run) == whole
    with pytest.raises(RunError, match=r"the run folder .*first does not exist"):
        train(config, tmp_path / "before")
    assert not (tmp_path / "before").exists()
    train(configure(seed=4), first)
    (run / "COMPLETE").unlink()
    with pytest.raises(RunError, match=r"different configuration: initial_sha256 \(was '"):
        train(config, run)
    with pytest.raises(RunError, match=r"different configuration: .*initial \(was None, now '.*moved'\)"):
        train(configure(seed=4).replace(initial=str(tmp_path / "moved")), first)


def _limit_memory(monkeypatch: pytest.MonkeyPatch, *, step: int) -> None:
    """Let only two columns fit from a step on."""
    accumulate, steps = loop.accumulate, iter(range(1000))

    def limited(objective: Any, inputs: torch.Tensor, *rest: Any, columns: int | None) -> Any:
        if next(steps) >= step and (columns is None or columns > 2):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return accumulate(objective, inputs, *rest, columns=columns)

    monkeypatch.setattr(loop, "accumulate", limited)


def test_out_of_memory_names_the_remedy_and_it_helps(tmp_path: Path, configure: Configure) -> None:
    """Other parts of a batch are another training: they come before the first state, or in another folder."""
    config, parts = configure(), configure(micro_batch_size=2)
    with pytest.MonkeyPatch.context() as patch:
        _limit_memory(patch, step=7)
        with pytest.raises(TrainingError, match=r"^out of memory at step 7; .*micro_batch_size=2, .* another folder"):
            train(config, tmp_path / "run")
        with pytest.raises(RunError, match=r"configuration: training\.micro_batch_size \(was 4, now 2\); give the old"):
            train(parts, tmp_path / "run")
        with pytest.raises(TrainingError, match=r"at step 0; .*set training\.micro_batch_size=2.* their gradients$"):
            train(config, tmp_path / "other")
        train(parts, tmp_path / "other")
    assert finetuning(tmp_path / "other").training.micro_batch_size == 2  # what helped is not forgotten
    train(configure(micro_batch_size=4), tmp_path / "run")  # the whole batch by its number


@pytest.mark.parametrize(
    ("place", "name", "error"),
    [
        (torch.optim.AdamW, "step", MemoryError("")),
        (loop, "mean_nll", RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")),
        (loop, "accumulate", RuntimeError("shapes do not match")),
    ],
)
def test_errors_anywhere_in_training(
    place: Any, name: str, error: Exception, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    is_memory = "shapes" not in str(error)
    text = r"out of memory at step \d+; .* with training\.bptt below \d+, into a new" if is_memory else "^shapes"
    with monkeypatch.context() as patch:
        patch.setattr(place, name, full)
        with pytest.raises(TrainingError if is_memory else RuntimeError, match=text):
            train(configure(epochs=1, micro_batch_size=1), tmp_path)
    assert train(configure(epochs=1, micro_batch_size=1), tmp_path).steps
