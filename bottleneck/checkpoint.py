"""A run on disk: what is in its folder, and how it is read back with every byte checked.

The folder holds ``config.json``, ``vocabulary.json``, ``model.safetensors``, ``metrics.jsonl``,
``trainer_state/`` and, last of all, ``COMPLETE`` with the SHA-256 of the others. ``checkpoints/`` may hold the weights
of each validation, every one a finished run of its own without ``trainer_state/`` (`keep_checkpoint`). Weights and
states hold a checksum of their own (`tensor_file`), so that no change before the end is sealed as true. Wall-clock
times stand apart in ``timing.jsonl``, which no hash covers: everything else is the same, byte for byte, for one seed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import corpora, tensor_file
from .corpora import Corpus, Vocabulary
from .errors import BottleneckError, RunError
from .files import explain_output_errors, make_folder, sha256_bytes, sha256_file, write_bytes, write_json
from .language_model import LanguageModel, ModelConfig

FORMAT = "softmax-bottleneck run 1"
CONFIG, VOCABULARY, MODEL, COMPLETE = "config.json", "vocabulary.json", "model.safetensors", "COMPLETE"
METRICS, TIMING, STATE = "metrics.jsonl", "timing.jsonl", "trainer_state"
CHECKPOINTS = "checkpoints"
_TIED = "head.weight"
_MODEL, _STATE = "model", "state"
"""Keys of the metadata of a run's two kinds of tensor file."""


@dataclass(frozen=True)
class Run:
    """A finished run, read and checked."""

    path: Path
    config: Mapping[str, Any]
    """``config.json`` as written."""
    vocabulary: Vocabulary
    model: LanguageModel
    """In eval mode, on the CPU, float32."""

    @property
    def corpus(self) -> str:
        """Name or path of the corpus it was trained on."""
        return str(self.config["corpus"]["name"])


def corpus_of(run: Run, data: str | None = None) -> Corpus:
    """Return the corpus a run was trained on, or ``data``, encoded with the run's vocabulary.

    Raises:
        CorpusError: when it is not there, or has a token outside the vocabulary.
        RunError: when the run's own corpus has changed since.
    """
    corpus = corpora.load(data or run.corpus, vocabulary=run.vocabulary)
    if data is None and corpus.sha256 != run.config["corpus"]["sha256"]:
        raise RunError(
            f"the corpus {corpus.name} is not the one {run.path} was trained on (its text has changed); "
            f"bring the old one back, or name this one with --data {corpus.name} to measure on it all the same"
        )
    return corpus


def is_run(path: Path) -> bool:
    """Return whether ``path`` is a run folder of this tool, finished or not."""
    try:
        return bool(read_config(path))
    except RunError:
        return False


def save_model(path: Path, model: LanguageModel) -> None:
    """Write the weights as safetensors; tied embeddings once."""
    write_bytes(path, tensor_file.pack(model_tensors(model), key=_MODEL))


def model_tensors(model: LanguageModel) -> dict[str, Tensor]:
    """Return the weights by name, tied embeddings under their input name only."""
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    if model.config.tie_embeddings:
        del state[_TIED]
    return state


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the weights in a file by name; `RunError` when it is absent or damaged."""
    try:
        return tensor_file.read(path, key=_MODEL)[0]
    except OSError as error:
        raise RunError(f"cannot read the weights {path}: {error.strerror or error}; train the run again") from error
    except tensor_file.DAMAGE as error:
        raise RunError(f"the weights {path} are damaged ({error}); train the run again") from error


def write_state(path: Path, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Write the state of a training run."""
    write_bytes(path, tensor_file.pack(tensors, key=_STATE, about=numbers))


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and numbers of a training run's state; `RunError` when it is damaged."""
    try:
        tensors, numbers = tensor_file.read(path, key=_STATE)
        if numbers is None:
            raise KeyError(_STATE)
    except tensor_file.DAMAGE as error:
        raise RunError(f"the saved state {path} is damaged ({error}); delete it to start the run anew") from error
    return tensors, numbers


def state_files(folder: Path) -> list[Path]:
    """Return the saved states of a run, the latest last."""
    return sorted((folder / STATE).glob("step-*.safetensors"))


def check_tensors(folder: Path) -> None:
    """Check weights and states of a run, finished or not, by the checksums inside; `RunError` for a damaged file."""
    if (folder / MODEL).exists():
        read_tensors(folder / MODEL)
    for file in state_files(folder):
        read_state(file)


@torch.no_grad()
def load_tensors_into(model: LanguageModel, tensors: Mapping[str, Tensor], *, where: Path) -> None:
    """Fill a model's weights; `RunError` when names, shapes or types do not fit."""
    expected = model_tensors(model)
    if different := sorted(set(tensors) ^ set(expected)):
        raise RunError(f"{where} does not fit its config.json: tensor {different[0]!r} is missing or unexpected")
    for name, tensor in tensors.items():
        found, wanted = (f"{t.dtype} of shape {tuple(t.shape)}" for t in (tensor, expected[name]))
        if found not in (wanted, wanted.replace("float32", "bfloat16")):  # see `copy_weights`
            raise RunError(f"{where} does not fit its config.json: {name!r} is {found}, not {wanted}")
        expected[name].copy_(tensor)


def read_config(path: Path) -> dict[str, Any]:
    """Return the ``config.json`` of a run folder, finished or not."""
    if not path.is_dir():
        raise RunError(f"there is no run folder {path}; 'bottleneck train --out {path}' makes one")
    file = path / CONFIG
    if not file.exists():
        raise RunError(f"{path} has no {CONFIG}, so it is no run; 'bottleneck train' makes one")
    config = _read_json(file)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise RunError(
            f"{file} was not written by this tool (its format is not {FORMAT!r}); "
            "a run is a folder made by 'bottleneck train'"
        )
    return config


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{file} is not JSON: {error}") from error


def load(path: str | Path, *, unfinished: bool = False) -> Run:
    """Read a finished run and check every file against the hashes in ``COMPLETE``.

    Args:
        path: the run's folder.
        unfinished: whether a run that has not ended is taken as well, with its best weights so far.

    Raises:
        RunError: when the folder is missing, unfinished, changed, or another tool's.
    """
    path = Path(path)
    config = read_config(path)
    if not (unfinished and (path / MODEL).exists() and not (path / COMPLETE).exists()):
        check_hashes(path)
    try:
        vocabulary = Vocabulary(tuple(_read_json(path / VOCABULARY)))
        with torch.random.fork_rng(devices=[]):  # the first weights are drawn, only to be replaced
            model = LanguageModel(ModelConfig.model_validate(config["model"]), vocab_size=len(vocabulary))
    except (KeyError, TypeError, ValueError, BottleneckError) as error:
        raise RunError(f"the run {path} cannot be read: {error}") from error
    load_tensors_into(model, read_tensors(path / MODEL), where=path / MODEL)
    return Run(path, config, vocabulary, model.eval())


def copy_weights(run: str | Path, out: str | Path, *, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write a run again without the state of its training: what is needed to move, measure and evaluate it.

    Args:
        run: folder of a finished run.
        out: folder of the copy, which is made and must be new.
        dtype: of the weights on disk, ``torch.float32`` or ``torch.bfloat16``. They are read as float32: in bfloat16
            the copy is another model, its weights rounded to 8 significant bits.

    Returns:
        ``out``.

    Raises:
        RunError: the run is damaged, ``out`` is there already, or the type is another one.
        OutputError: the copy cannot be written.
    """
    loaded, out = load(run), Path(out)
    if dtype not in (torch.float32, torch.bfloat16):
        raise RunError(f"weights are kept in float32 or bfloat16, not {dtype}")
    if out.exists():
        raise RunError(f"{out} is there already; give another folder")
    there = [name for name in (CONFIG, VOCABULARY, METRICS, TIMING) if (loaded.path / name).exists()]
    contents = {name: (loaded.path / name).read_bytes() for name in there}
    tensors = {name: tensor.to(dtype) for name, tensor in model_tensors(loaded.model).items()}
    _write_run(out, {**contents, MODEL: tensor_file.pack(tensors, key=_MODEL)})
    return out


def keep_checkpoint(run: Path, model: LanguageModel, *, step: int, metrics: bytes) -> Path:
    """Write a model as it is after some step as a finished run of its own, ``RUN/checkpoints/step-…``.

    It takes the run's ``config.json`` and ``vocabulary.json``, so that every command reads it like the run. One that is
    there already stays: a run that is continued comes to the same weights again.

    Args:
        run: the run's folder.
        model: with the weights to keep.
        step: updates made so far.
        metrics: its ``metrics.jsonl``, the rows up to this validation.

    Returns:
        The checkpoint's folder.

    Raises:
        OutputError: it cannot be written.
    """
    out = run / CHECKPOINTS / f"step-{step:09d}"
    if not out.exists():
        contents = {name: (run / name).read_bytes() for name in (CONFIG, VOCABULARY)}
        _write_run(out, {**contents, METRICS: metrics, MODEL: tensor_file.pack(model_tensors(model), key=_MODEL)})
    return out


def _write_run(out: Path, contents: Mapping[str, bytes]) -> None:
    """Write a finished run all at once: half of one would pass for a run that is not finished."""
    part = out.with_name(f".{out.name}.part")
    with explain_output_errors(part):
        if part.exists():
            shutil.rmtree(part)
        make_folder(part)
        for name, data in contents.items():
            write_bytes(part / name, data)
        write_complete(part, contents)
        part.rename(out)


def write_complete(path: Path, contents: Mapping[str, bytes] | None = None) -> None:
    """Seal a run: write the hashes of all its files, last of all; `RunError` when weights or a state have changed.

    ``contents`` is what files were written with: their hashes are of that, whatever the disk has made of it.
    """
    check_tensors(path)
    known = {name: sha256_bytes(data) for name, data in (contents or {}).items()}
    hashes = {name: known.get(name) or sha256_file(path / name) for name in sealed_files(path)}
    write_json(path / COMPLETE, {"sha256": hashes})


def sealed_files(path: Path) -> list[str]:
    """Return the files that ``COMPLETE`` covers, by name."""
    files = (path / STATE).iterdir() if (path / STATE).is_dir() else ()
    state = sorted(f"{STATE}/{file.name}" for file in files if file.name[0] != ".")
    return [CONFIG, VOCABULARY, MODEL, METRICS, *state]


def check_hashes(path: Path) -> None:
    """Check every file of a finished run against its hash.

    Raises:
        RunError: when the run is unfinished, or a file of it is lost or has changed.
    """
    if not (path / COMPLETE).exists():
        raise RunError(
            f"the run {path} is not finished (it has no {COMPLETE} file); "
            "run the same 'bottleneck train' command again to finish it"
        )
    try:
        hashes = dict(json.loads((path / COMPLETE).read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path / COMPLETE} is damaged: {error!r}; train the run again") from error
    if missing := [name for name in (CONFIG, VOCABULARY, MODEL, METRICS) if name not in hashes]:
        raise RunError(f"{path / COMPLETE} is damaged: it has no hash of {missing[0]}; train the run again")
    for name, expected in hashes.items():
        file = path / name
        if not file.is_file():
            raise RunError(f"the run {path} lost its file {name}; train it again or copy it anew")
        try:
            changed = sha256_file(file) != expected
        except OSError as error:
            raise RunError(f"cannot read {file}: {error.strerror}") from error
        if changed:
            raise RunError(f"{file} has changed since the run was finished; train it again or copy it anew")
