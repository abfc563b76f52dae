"""Train a language model into a run folder, resumable at any instant."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from .. import corpora, heads
from .._version import __version__
from ..checkpoint import (
    COMPLETE,
    CONFIG,
    FORMAT,
    METRICS,
    MODEL,
    STATE,
    TIMING,
    VOCABULARY,
    check_hashes,
    load_tensors_into,
    read_config,
    read_tensors,
    save_model,
    write_complete,
)
from ..errors import RunError, TrainingError
from ..files import explain_output_errors, make_folder, unfinished, write_bytes, write_json
from ..language_model import LanguageModel
from ..progress import SILENT, Progress
from . import optimizer as optimizers
from .batches import columns, stretches
from .config import RunConfig, difference, parse
from .evaluate import Evaluation, evaluate, perplexity_of
from .state import TrainerState, load_state, save_state


@dataclass(frozen=True)
class FitResult:
    """A finished run in numbers."""

    path: Path
    """The run's folder."""
    parameters: int
    """Number of weights, tied ones counted once."""
    test: Evaluation
    seconds: float
    """Training time of the steps that count, over all restarts."""


def fit(config: RunConfig, folder: str | Path, *, device: str = "auto", progress: Progress = SILENT) -> FitResult:
    """Train, keep the weights of the best validation loss, score the test split, and seal the folder.

    A folder that holds an unfinished run of the same configuration is continued where its last saved state
    left it; a finished one is only read. On the CPU, with one number of threads, the files come out the same
    byte for byte however often the run was killed.

    Args:
        config: what to train.
        folder: where the run goes.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        progress: where to report.

    Raises:
        RunError: the folder holds something else, a run of another configuration, or a damaged one.
        TrainingError: the loss is no longer finite, or the corpus is too short.
        OutputError: the folder cannot be written; what was saved before is whole.
    """
    folder = Path(folder)
    corpus = corpora.load(config.corpus)
    # All that can be wrong with the request shows before the folder is touched.
    data = columns(corpus.split("train"), config.training.batch_size)
    place = torch.device(resolve_device(device))
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if place.type == "cuda" else []):
        torch.manual_seed(config.seed)
        model = LanguageModel(config.model, vocab_size=len(corpus.vocabulary))
        description = _describe(config, corpus, model)
        if _prepare(folder, description, corpus):
            return result(folder)
        model.to(place)
        _train(config, folder, data.to(place), corpus, model, progress)
        _finish(folder, corpus, model, progress)
    return result(folder)


def result(folder: str | Path) -> FitResult:
    """Return the numbers of a finished run from its files."""
    folder = Path(folder)
    config = read_config(folder)
    last = json.loads((folder / METRICS).read_text(encoding="utf-8").splitlines()[-1])
    test = Evaluation(last["test_loss"], last["test_perplexity"], last["test_tokens"])
    timing = folder / TIMING
    rows = timing.read_text(encoding="utf-8").splitlines() if timing.exists() else []
    return FitResult(folder, config["parameters"], test, sum(json.loads(row)["seconds"] for row in rows))


def resolve_device(device: str) -> str:
    """Return ``"cpu"`` or ``"cuda"``; `TrainingError` when CUDA is asked for and not there."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise TrainingError("CUDA was asked for, but torch sees no CUDA device; use --device cpu")
    return device


def configuration_of(saved: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that a run's ``config.json`` records."""
    values = {key: saved[key] for key in RunConfig.model_fields if key in saved}
    if isinstance(corpus := values.get("corpus"), Mapping):
        values["corpus"] = corpus.get("name")
    return parse(values, where=CONFIG)


def _describe(config: RunConfig, corpus: corpora.Corpus, model: LanguageModel) -> dict[str, Any]:
    """Return ``config.json``: every setting resolved, and what the numbers further depend on."""
    own = heads.settings(config.model.head.name)
    head = {key: value for key, value in asdict(model.head.config).items() if key in own}
    head["embedding_size"] = model.head.embedding_size
    backbone = asdict(model.backbone.config)  # type: ignore[call-overload]
    values = config.model_dump(mode="json")
    values["model"]["head"] = {"name": config.model.head.name, **head}
    values["model"]["backbone"] = {"name": config.model.backbone.name, **backbone}
    values["corpus"] = {
        "name": corpus.name,
        "sha256": corpus.sha256,
        "vocab_size": len(corpus.vocabulary),
    }
    versions = {
        "softmax-bottleneck": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    return {"format": FORMAT, **values, "parameters": model.parameter_count(), "versions": versions}


def _prepare(folder: Path, description: dict[str, Any], corpus: corpora.Corpus) -> bool:
    """Start the folder or check that it can be continued; return whether it is finished already."""
    if (folder / CONFIG).exists():
        old = read_config(folder)
        if differences := difference(
            {**old, "versions": None}, json.loads(json.dumps({**description, "versions": None}))
        ):
            raise RunError(
                f"{folder} holds a run with a different configuration: {'; '.join(differences[:4])}; "
                "give the old settings to continue it, or another --out"
            )
        if (folder / COMPLETE).exists():
            check_hashes(folder)
            return True
    elif folder.is_dir() and {*folder.iterdir()} - {*unfinished(folder, CONFIG)}:
        raise RunError(f"{folder} is not empty and holds no run; give another --out")
    else:
        make_folder(folder)
        write_json(folder / CONFIG, description)
    # From here on the folder is ours: a killed process may have left half of anything but the configuration.
    with explain_output_errors(folder):
        for leftover in [*unfinished(folder), *unfinished(folder / STATE)]:
            leftover.unlink()
    write_json(folder / VOCABULARY, list(corpus.vocabulary.tokens))
    return False


def _train(
    config: RunConfig,
    folder: Path,
    data: torch.Tensor,
    corpus: corpora.Corpus,
    model: LanguageModel,
    progress: Progress,
) -> None:
    settings = config.training
    steps_per_epoch = math.ceil((len(data) - 1) / settings.bptt)
    steps = steps_per_epoch * settings.epochs
    optimizer = optimizers.build(settings.optimizer, model.parameters(), model.head.parameter_settings())
    state, carried = load_state(folder, model, optimizer) or (TrainerState(), ())
    if state.step == 0 and settings.unigram_bias:
        _start_bias(model, data)
    clock = _Clock(folder / TIMING)
    while state.epoch < settings.epochs:
        started = time.monotonic()
        model.train()
        if state.position == 0:
            carried = model.backbone.initial_state(settings.batch_size)
        description = f"epoch {state.epoch + 1}/{settings.epochs}"
        with progress.bar(description, steps_per_epoch, "steps") as bar:
            bar.advance(state.position // settings.bptt)
            for position, inputs, targets in stretches(data, settings.bptt, start=state.position):
                rate = optimizers.learning_rate(settings.optimizer, step=state.step, steps=steps)
                optimizers.set_learning_rate(optimizer, rate)
                hidden, carried = model.hidden(inputs, carried)
                carried = tuple(tensor.detach() for tensor in carried)
                loss = model.head.nll(hidden, targets)
                value = loss.item()
                penalty = model.head.penalty(hidden)
                loss = loss if penalty is None else loss + penalty
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.optimizer.clip).item()
                for what, number in (("loss", value), ("gradient's norm", norm)):
                    if not math.isfinite(number):
                        raise TrainingError(
                            f"the {what} became {number} at step {state.step}; the last saved state is kept in "
                            f"{folder}: lower training.optimizer.learning_rate "
                            f"(now {settings.optimizer.learning_rate:g}) or "
                            f"training.optimizer.clip (now {settings.optimizer.clip:g}) and train into a new folder"
                        )
                optimizer.step()
                state.step += 1
                state.position = position + len(inputs)
                state.loss_sum += value * targets.numel()
                state.loss_tokens += targets.numel()
                bar.advance(1, f"loss {state.loss_sum / state.loss_tokens:.3f}")
                if state.step % settings.save_every == 0 and state.position < len(data) - 1:
                    save_state(folder, state, model, optimizer, carried)
                    clock.tick(state.step)
        _end_epoch(folder, corpus, model, state, rate)
        save_state(folder, state, model, optimizer, carried)
        clock.tick(state.step)
        row = state.metrics[-1]
        progress.line(
            f"{description}: train perplexity {row['train_perplexity']:.2f}, "
            f"valid perplexity {row['valid_perplexity']:.2f} ({time.monotonic() - started:.0f} s)"
        )
    _write_metrics(folder, state.metrics)


@torch.no_grad()
def _start_bias(model: LanguageModel, data: torch.Tensor) -> None:
    """Set the output bias to log unigram frequencies, each count plus one."""
    if model.head.bias is not None:
        counts = torch.bincount(data.flatten(), minlength=model.head.vocab_size) + 1.0
        model.head.bias.copy_(torch.log(counts / counts.sum()))


def _end_epoch(folder: Path, corpus: corpora.Corpus, model: LanguageModel, state: TrainerState, rate: float) -> None:
    """Validate, keep the weights when they are the best, and move the state to the next epoch."""
    train_loss = state.loss_sum / state.loss_tokens
    train_perplexity = perplexity_of(train_loss)
    valid = evaluate(model, corpus.split("valid"))
    best = state.best_loss is None or valid.loss < state.best_loss
    if best:
        state.best_loss = valid.loss
        save_model(folder / MODEL, model)
    state.epoch += 1
    state.metrics.append(
        {
            "epoch": state.epoch,
            "step": state.step,
            "learning_rate": rate,
            "train_loss": train_loss,
            "train_perplexity": train_perplexity,
            "valid_loss": valid.loss,
            "valid_perplexity": valid.perplexity,
            "best": best,
        }
    )
    state.position, state.loss_sum, state.loss_tokens = 0, 0.0, 0
    _write_metrics(folder, state.metrics)


def _finish(folder: Path, corpus: corpora.Corpus, model: LanguageModel, progress: Progress) -> None:
    """Score the test split with the best weights and seal the run."""
    load_tensors_into(model, read_tensors(folder / MODEL), where=folder / MODEL)
    test = evaluate(model, corpus.split("test"), progress=progress)
    rows = [json.loads(row) for row in (folder / METRICS).read_text(encoding="utf-8").splitlines()]
    rows.append({"test_loss": test.loss, "test_perplexity": test.perplexity, "test_tokens": test.tokens})
    _write_metrics(folder, rows)
    write_complete(folder)


def _write_metrics(folder: Path, rows: list[dict[str, Any]]) -> None:
    write_bytes(folder / METRICS, "".join(json.dumps(row) + "\n" for row in rows).encode())


class _Clock:
    """Adds the seconds since the last saved state, so that a killed run still knows its time."""

    def __init__(self, path: Path) -> None:
        self._path, self._last = path, time.monotonic()

    def tick(self, step: int) -> None:
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        rows = self._path.read_bytes() if self._path.exists() else b""
        write_bytes(self._path, rows + json.dumps({"step": step, "seconds": round(seconds, 3)}).encode() + b"\n")
