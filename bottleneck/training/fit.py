"""Train a language model into a run folder, and resume after any interruption."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from .. import backbones, corpora, heads
from .._version import __version__
from ..allocator import keep_freed_memory
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
    is_run,
    load,
    load_tensors_into,
    model_tensors,
    read_config,
    read_tensors,
    state_files,
    write_complete,
)
from ..errors import RunError
from ..files import explain_output_errors, json_bytes, make_folder, only_process, sha256_file, unfinished, write_json
from ..language_model import LanguageModel
from ..machine import machine, resolve_device
from ..parallel import Processes, launched
from ..progress import SILENT, Progress
from .batches import columns
from .config import RunConfig, difference, parse
from .evaluate import Evaluation, evaluate
from .loop import Loop, write_metrics
from .objective import is_dropping


@dataclass(frozen=True)
class FitResult:
    """The results of a finished run."""

    path: Path
    """The run's folder."""
    parameters: int
    """Number of weights, tied ones counted once."""
    test: Evaluation
    seconds: float
    """Training time in seconds over all restarts, without steps that were repeated."""
    steps: int
    """Number of updates."""
    averaged_steps: int
    """Number of last updates whose weights were averaged; 0 if averaging never started."""
    valid_perplexity: float
    """Best validation, of the weights that were kept."""
    machine: Mapping[str, Any]
    """Description of the machine that started the run (see `machine`); empty for older runs."""


def fit(config: RunConfig, folder: str | Path, *, device: str = "auto", progress: Progress = SILENT) -> FitResult:
    """Train, keep the weights of the best validation loss, score the test split, and seal the folder.

    An unfinished run of the same configuration continues from its last saved state; a finished run is only read. On
    the CPU, with the same number of threads, the files are identical byte for byte however often the run was
    interrupted. The processes that ``torchrun`` starts train one model together, each on its share of the batch's
    columns. The process keeps freed memory (`keep_freed_memory`).

    Args:
        config: configuration of the run.
        folder: folder of the run.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        progress: where to report.

    Raises:
        RunError: when the folder holds other files, a run of another configuration or a damaged run, or another process
            is training into it.
        TrainingError: when the loss is no longer finite, memory runs out, or the corpus is too short.
        ParallelError: when another process has ended; the saved state is complete.
        ConfigurationError: when the processes cannot share the batch's columns equally.
        OutputError: when the folder cannot be written; earlier files are complete.
    """
    keep_freed_memory()
    with launched() as processes, ExitStack() as stack:
        return _fit(config, Path(folder), resolve_device(device), processes, stack, progress)


def _fit(
    config: RunConfig, folder: Path, device: str, processes: Processes, stack: ExitStack, progress: Progress
) -> FitResult:
    corpus = corpora.load(config.corpus)
    # All errors of the request are raised before the folder is touched.
    data = columns(corpus.split("train"), config.training.batch_size)
    processes.share(config.training.batch_size)
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if device.startswith("cuda") else []):
        torch.manual_seed(config.seed)
        model = LanguageModel(config.model, vocab_size=len(corpus.vocabulary))
        if config.initial is not None and not is_begun(folder):
            _start_from(Path(config.initial), model, corpus)
        description = _describe(config, folder, corpus, model, device)
        if processes.in_first(lambda: _prepare(folder, description, corpus, stack)):
            return result(folder)
        model.to(device)
        Loop(config, folder, corpus, data, model, processes=processes, progress=progress).run()
        processes.in_first(lambda: _finish(folder, description, corpus, model, progress))
    return result(folder)


def result(folder: str | Path) -> FitResult:
    """Return the numbers of a finished run from its files."""
    folder = Path(folder)
    config = read_config(folder)
    *validations, last = _rows(folder / METRICS)
    return FitResult(
        folder,
        parameters=config["parameters"],
        test=Evaluation(last["test_loss"], last["test_perplexity"], last["test_tokens"]),
        seconds=sum(row["seconds"] for row in (_rows(folder / TIMING) if (folder / TIMING).exists() else [])),
        steps=validations[-1]["step"],
        averaged_steps=validations[-1].get("averaged_steps", 0),
        valid_perplexity=min(row["valid_perplexity"] for row in validations),
        machine=config.get("machine", {}),
    )


def is_begun(folder: Path) -> bool:
    """Return whether a run has weights of its own, so that it no longer needs the one it started from."""
    return (folder / COMPLETE).exists() or bool(state_files(folder))


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in file.read_text(encoding="utf-8").splitlines()]


def configuration_of(saved: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that a run's ``config.json`` records."""
    values = {key: saved[key] for key in RunConfig.model_fields if key in saved}
    if isinstance(corpus := values.get("corpus"), Mapping):
        values["corpus"] = corpus.get("name")
    return parse(values, where=CONFIG)


def _start_from(initial: Path, model: LanguageModel, corpus: corpora.Corpus) -> None:
    """Give a model the best weights of a run."""
    if is_run(initial) and not (initial / MODEL).exists():
        raise RunError(
            f"the run {initial} has no best weights yet, because it stopped before its first validation; start from "
            "another, or train one with more training.validations an epoch"
        )
    run = load(initial, unfinished=True)
    (other, own) = (f"{of.backbone.name} with {of.head.name}" for of in (run.model.config, model.config))
    if other != own:
        raise RunError(f"the run {initial} is of another model, {other}; start from a run of {own}")
    if run.vocabulary.tokens != corpus.vocabulary.tokens:
        raise RunError(
            f"the run {initial} was trained with another vocabulary than that of {corpus.name}; start from a run on "
            "the same corpus"
        )
    text = run.config["corpus"]
    if text["name"] == corpus.name and text["sha256"] != corpus.sha256:
        raise RunError(
            f"{corpus.name} is not the text that the run {initial} was trained on (it has changed since): its held-out "
            "splits may have been trained on; bring the old text back, or put the new one into another folder"
        )
    load_tensors_into(model, model_tensors(run.model), where=initial / MODEL)


def _describe(
    config: RunConfig, folder: Path, corpus: corpora.Corpus, model: LanguageModel, device: str
) -> dict[str, Any]:
    """Return the content of ``config.json``: all resolved settings, and everything else that the numbers depend on."""
    head = {key: model.head.settings[key] for key in heads.parameters(config.model.head.name)}
    backbone = asdict(model.backbone.config)
    values = config.model_dump(mode="json")
    values["model"]["head"] = {"name": config.model.head.name, **head}
    values["model"]["backbone"] = {"name": config.model.backbone.name, **backbone}
    values["corpus"] = {"name": corpus.name, "sha256": corpus.sha256, "vocab_size": len(corpus.vocabulary)}
    if config.initial is not None:
        values["initial_sha256"] = _initial_sha256(Path(config.initial), folder)
    return {
        "format": FORMAT,
        **values,
        "parameters": model.parameter_count(),
        "versions": {
            "softmax-bottleneck": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "machine": machine(device),
    }


def _initial_sha256(initial: Path, folder: Path) -> str | None:
    """Return the hash of the weights a run starts from, read from ``config.json`` if they no longer exist."""
    if not (initial / MODEL).exists() and is_begun(folder):
        known: str | None = read_config(folder).get("initial_sha256")
        return known
    return sha256_file(initial / MODEL)


def _prepare(folder: Path, description: dict[str, Any], corpus: corpora.Corpus, stack: ExitStack) -> bool:
    """Start the folder or check that it can be continued; return whether it is finished already.

    Other processes are kept off it until the stack is left.
    """
    if _is_finished(folder, description):
        return True
    make_folder(folder)
    if not stack.enter_context(only_process(folder)):
        raise RunError(f"another process is training into {folder}: wait until it is done, or give another --out")
    if _is_finished(folder, description):  # by the process that was there until now
        return True
    # From here on the folder is ours: a killed process may have left half of anything but the configuration.
    with explain_output_errors(folder):
        for leftover in [*unfinished(folder), *unfinished(folder / STATE)]:
            leftover.unlink()
    if not (folder / CONFIG).exists():
        write_json(folder / CONFIG, description)
    elif (saved := read_config(folder))["training"] != description["training"]:
        write_json(folder / CONFIG, {**saved, "training": description["training"]})  # what memory suffices for
    write_json(folder / VOCABULARY, list(corpus.vocabulary.tokens))
    return False


def _is_finished(folder: Path, description: dict[str, Any]) -> bool:
    """Return whether the folder holds this run, whole; `RunError` when it holds something else."""
    if (folder / CONFIG).exists():
        saved, now = read_config(folder), json.loads(json.dumps(description))
        if saved.get("initial_sha256") == now.get("initial_sha256") is not None:
            now["initial"] = saved["initial"]  # the same run, moved
        begun = is_begun(folder)
        if differences := difference(_decisive(saved, begun=begun), _decisive(now, begun=begun)):
            raise RunError(
                f"{folder} holds a run with a different configuration: {'; '.join(differences[:4])}; "
                "give the old settings to continue it, or another --out"
            )
        if (folder / COMPLETE).exists():
            check_hashes(folder)
            return True
    elif folder.is_dir() and {*folder.iterdir()} - {*unfinished(folder, CONFIG)}:
        raise RunError(f"{folder} is not empty and holds no run; give another --out")
    return False


def _decisive(saved: dict[str, Any], *, begun: bool) -> dict[str, Any]:
    """Return the part of a ``config.json`` that must stay the same, settings that it is too old for at their defaults.

    How many columns are worked through at once may change, the remedy when memory does not suffice, unless training has
    ``begun`` with dropout masks that are drawn for so many.
    """
    settings = configuration_of(saved).model_dump(mode="json")
    training = settings["training"]
    head, backbone = saved["model"]["head"], saved["model"]["backbone"]
    head = {key: setting.default for key, setting in heads.parameters(head["name"]).items()} | head
    backbone = asdict(backbones.find(backbone["name"]).Config()) | backbone
    model = json.loads(json.dumps({**saved["model"], "head": head, "backbone": backbone}))
    columns, batch_size = training["micro_batch_size"], training["batch_size"]
    fixed = begun and is_dropping(model["backbone"], model["head"])
    training["micro_batch_size"] = min(columns or batch_size, batch_size) if fixed else None
    told = {"versions": None, "machine": None}
    return {**saved, "initial": settings["initial"], "model": model, "training": training, **told}


def _finish(
    folder: Path, description: dict[str, Any], corpus: corpora.Corpus, model: LanguageModel, progress: Progress
) -> None:
    """Score the test split with the best weights and seal the run, unless it is no longer the one that was trained."""
    load_tensors_into(model, read_tensors(folder / MODEL), where=folder / MODEL)
    test = evaluate(model, corpus.split("test"), progress=progress)
    rows = _rows(folder / METRICS)
    rows.append({"test_loss": test.loss, "test_perplexity": test.perplexity, "test_tokens": test.tokens})
    _is_finished(folder, description)
    contents = {CONFIG: json_bytes(read_config(folder)), VOCABULARY: json_bytes(list(corpus.vocabulary.tokens))}
    write_complete(folder, {**contents, METRICS: write_metrics(folder, rows)})
