"""Train a language model into a run folder, and resume after any interruption."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from typing_extensions import TypedDict

from .. import corpora, heads
from ..core.devices import forked_random, resolve_device
from ..core.files import explain_output_errors, make_folder, only_process, sha256_file, unfinished, write_json
from ..core.interruption import note_if_interrupted
from ..core.json_file import Count, read_json_lines
from ..core.machine import machine
from ..core.parallel import launched
from ..core.progress import Progress, reporting
from ..core.version import __version__
from ..errors import RunError
from ..language_models import checkpoint
from ..language_models.checkpoint import METRICS, MODEL, check_hashes, load_tensors_into, read_config, state_files
from ..language_models.model import LanguageModel, build
from .config import RunConfig, complete, configuration_of, difference
from .epochs import Epochs
from .evaluate import Perplexity, evaluate, text_of
from .loop import Loop
from .optimizer import copies_of
from .state import Row, write_metrics


class _Test(TypedDict):
    """The last row of ``metrics.jsonl``."""

    test_loss: float
    test_tokens: Count


@dataclass(frozen=True)
class FitResult:
    """The results of a finished run."""

    path: Path
    """The run's folder."""
    parameters: int
    """Number of weights, tied ones counted once."""
    test: Perplexity
    seconds: float
    """Training time in seconds over all restarts, without steps that were repeated."""
    steps: int
    """Number of updates."""
    averaged_steps: int
    """Number of updates whose weights the kept ones are the mean of; 0 for the weights of one update."""
    valid_perplexity: float
    """Best validation, of the weights that were kept."""
    machine: Mapping[str, Any]
    """Description of the machine that started the run (see `machine`); empty for older runs."""


def fit(config: RunConfig, folder: str | Path, *, device: str = "auto", progress: Progress | bool = False) -> FitResult:
    """Train, keep the weights of the best validation loss, score the test split, and seal the folder.

    An unfinished run of the same configuration continues from its last saved state; a finished run is only read. On
    the CPU, with the same number of threads, the files are identical byte for byte however often the run was
    interrupted; Ctrl-C and SIGTERM save the state at the end of the step. The processes that ``torchrun`` starts train
    one model together, each on its share of the batch's columns.

    Args:
        config: configuration of the run.
        folder: folder of the run.
        device: device to train on, as for `resolve_device`.
        progress: where to report; ``True`` means standard error.

    Raises:
        RunError: when the folder holds other files, a run of another configuration or a damaged run, or another process
            is training into it.
        TrainingError: when the loss is no longer finite, memory runs out, or the corpus is too short.
        ParallelError: when another process has ended; the saved state is complete.
        ConfigurationError: when the processes cannot share the batch's columns equally, or the model does not fit into
            memory.
        OutputError: when the folder cannot be written; earlier files are complete.
    """
    folder, device, report = Path(folder), resolve_device(device), reporting(progress)
    with launched() as processes, ExitStack() as stack:
        stack.enter_context(forked_random(device))
        # All errors of the request are raised before the folder is touched.
        corpus, part = corpora.load(config.corpus), processes.share(config.training.batch_size)
        torch.manual_seed(config.seed)
        model = build(config.model, vocab_size=len(corpus.vocabulary), copies=copies_of(config, device))
        lines = model.backbone.context_lines
        data = Epochs(corpus, config.training, seed=config.seed, lines=lines, part=part)
        if config.initial is not None and not is_begun(folder):
            _start_from(Path(config.initial), model, corpus)
        description = _describe(config, folder, corpus, model, device)
        if processes.in_first(lambda: _prepare(folder, description, corpus, stack)):
            return result(folder)
        model.to(device)
        Loop(config, folder, corpus, data, model, processes=processes, progress=report).run()
        with note_if_interrupted(lambda: f"the training in {folder} is done, and the same command evaluates the model"):
            processes.in_first(lambda: _finish(folder, description, corpus, model, report))
    return result(folder)


def result(folder: str | Path) -> FitResult:
    """Return the numbers of a finished run from its files."""
    folder = Path(folder)
    config = read_config(folder)
    *validations, last = _rows(folder / METRICS, Row | _Test) or [{}]
    if not validations or "test_loss" not in last:
        raise RunError(f"{folder / METRICS} lacks the scores of a finished run; train the run again or copy it anew")
    kept = min(validations, key=lambda row: row["valid_loss"])
    timing = folder / checkpoint.TIMING
    times = _rows(timing, dict[str, float], "remove it, and the run's time is unknown") if timing.exists() else []
    return FitResult(
        folder,
        parameters=config["parameters"],
        test=Perplexity(last["test_loss"], last["test_tokens"]),
        seconds=sum(row.get("seconds", 0.0) for row in times),
        steps=validations[-1]["step"],
        averaged_steps=kept.get("averaged_steps", 0),
        valid_perplexity=kept["valid_perplexity"],
        machine=config.get("machine", {}),
    )


def is_begun(folder: Path) -> bool:
    """Return whether a run has weights of its own, so that it no longer needs the one it started from."""
    return (folder / checkpoint.COMPLETE).exists() or bool(state_files(folder))


def _rows(file: Path, schema: Any, remedy: str = "train the run again or copy it anew") -> list[dict[str, Any]]:
    return read_json_lines(file, schema, error=RunError, remedy=remedy)


def _start_from(initial: Path, model: LanguageModel, corpus: corpora.Corpus) -> None:
    """Give a model the best weights of a run."""
    if checkpoint.is_run(initial) and not (initial / MODEL).exists():
        raise RunError(
            f"the run {initial} has no best weights yet, because it stopped before its first validation; start from "
            "another, or train one with more training.validations an epoch"
        )
    run = checkpoint.load(initial, unfinished=True)
    (other, expected) = (f"{of.backbone.name} with {of.head.name}" for of in (run.model.config, model.config))
    if other != expected:
        raise RunError(f"the run {initial} is of another model, {other}; start from a run of {expected}")
    if run.vocabulary.tokens != corpus.vocabulary.tokens:
        raise RunError(
            f"the run {initial} was trained with another vocabulary than that of {corpus.name}; start from a run on "
            "the same corpus"
        )
    text = run.config["corpus"]
    if text["name"] == corpus.name and text["sha256"] != corpus.sha256:
        raise RunError(
            f"{corpus.name} has changed since the run {initial} was trained on it: its held-out splits may hold "
            "training text of that run; restore the old text, or put the new one into another folder"
        )
    unfit = "is a run of a model of other sizes, so leave the settings of the model as they are in its config.json"
    load_tensors_into(model, checkpoint.model_tensors(run.model), where=initial, unfit=unfit)


def _describe(
    config: RunConfig, folder: Path, corpus: corpora.Corpus, model: LanguageModel, device: str
) -> dict[str, Any]:
    """Return the content of ``config.json``: all resolved settings, and everything else that the numbers depend on."""
    values = complete(config)
    values["model"]["head"] |= {key: model.head.settings[key] for key in heads.parameters(config.model.head.name)}
    values["corpus"] = {"name": corpus.name, "sha256": corpus.sha256, "vocab_size": len(corpus.vocabulary)}
    if config.initial is not None:
        weights = Path(config.initial) / MODEL
        is_gone = not weights.exists() and is_begun(folder)
        values["initial_sha256"] = read_config(folder).get("initial_sha256") if is_gone else sha256_file(weights)
    versions = {"softmax-bottleneck": __version__, "torch": torch.__version__, "python": platform.python_version()}
    parameters = model.parameter_count()
    described = {"parameters": parameters, "versions": versions, "machine": machine(device)}
    plain: dict[str, Any] = json.loads(json.dumps({"format": checkpoint.FORMAT, **values, **described}))
    return plain


def _prepare(folder: Path, description: dict[str, Any], corpus: corpora.Corpus, stack: ExitStack) -> bool:
    """Prepare a new folder, or check that its run can be continued; return whether the run is finished already.

    The folder is locked against other processes until ``stack`` is closed.
    """
    if _is_finished(folder, description):
        return True
    make_folder(folder)
    if not stack.enter_context(only_process(folder)):
        raise RunError(f"another process is training into {folder}: wait until it is done, or name another folder")
    if _is_finished(folder, description):  # by a process that held the lock until now
        return True
    # This process holds the lock: unfinished files, and states but the last, are those of a killed process.
    with explain_output_errors(folder):
        for leftover in [*unfinished(folder), *unfinished(folder / checkpoint.STATE), *state_files(folder)[:-1]]:
            leftover.unlink()
        for leftover in unfinished(folder / checkpoint.CHECKPOINTS):
            shutil.rmtree(leftover)
    if not (folder / checkpoint.CONFIG).exists():
        write_json(folder / checkpoint.CONFIG, description)
    elif (saved := read_config(folder))["training"] != description["training"]:  # another micro_batch_size
        write_json(folder / checkpoint.CONFIG, {**saved, "training": description["training"]})
    write_json(folder / checkpoint.VOCABULARY, list(corpus.vocabulary.tokens))
    return False


def _is_finished(folder: Path, description: dict[str, Any]) -> bool:
    """Return whether the folder holds this run, finished; raise `RunError` if it holds another or other files."""
    if not (folder / checkpoint.CONFIG).exists():
        if folder.is_dir() and {*folder.iterdir()} - {*unfinished(folder, checkpoint.CONFIG)}:
            raise RunError(f"{folder} is not empty and does not hold a run; name another folder")
        return False
    before, after = (_decisive(each, begun=is_begun(folder)) for each in (read_config(folder), description))
    if before["initial_sha256"] == after["initial_sha256"] is not None:
        after["initial"] = before["initial"]  # the initial run was moved
    if differences := difference(before, after):
        raise RunError(
            f"{folder} holds a run with a different configuration: {'; '.join(differences)}; "
            "give the old settings to continue it, or name another folder"
        )
    if not (folder / checkpoint.COMPLETE).exists():
        return False
    check_hashes(folder)
    return True


def _decisive(saved: dict[str, Any], *, begun: bool) -> dict[str, Any]:
    """Return the part of a ``config.json`` that must stay the same; settings that it lacks have their defaults.

    ``micro_batch_size`` may change until training has ``begun``, because that is the remedy when memory runs out.
    """
    settings = complete(configuration_of(saved))
    training = settings["training"]
    columns, batch_size = training["micro_batch_size"], training["batch_size"]
    training["micro_batch_size"] = min(columns or batch_size, batch_size) if begun else None
    return {**settings, "corpus": saved["corpus"], "initial_sha256": saved.get("initial_sha256")}


def _finish(
    folder: Path, description: dict[str, Any], corpus: corpora.Corpus, model: LanguageModel, progress: Progress
) -> None:
    """Score the test split with the best weights and seal the run, if the folder still holds this run."""
    load_tensors_into(model, checkpoint.read_tensors(folder / MODEL), where=folder / MODEL)
    test = evaluate(model, text_of(model, corpus, "test"), progress=progress)
    rows = _rows(folder / METRICS, Row)
    rows.append({"test_loss": test.loss, "test_perplexity": test.perplexity, "test_tokens": test.tokens})
    _is_finished(folder, description)
    write_metrics(folder, rows)
    checkpoint.write_complete(folder)
