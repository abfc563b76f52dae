"""The files of a run: their names, and functions that read them and check every byte.

The folder holds ``config.json``, ``vocabulary.json``, ``model.safetensors``, ``metrics.jsonl`` and, written last,
``COMPLETE`` with their SHA-256. ``trainer_state/`` holds the state of the training in one file with a checksum of its
own (`tensor_file`), and ``checkpoints/`` may hold the weights of each validation, each as a finished run without a
state (`keep_checkpoint`). Wall-clock times are in ``timing.jsonl``, which no hash covers; all other files are the same,
byte for byte, for one seed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired
from uuid import uuid4

import torch
from pydantic import ValidationError
from torch import Tensor
from typing_extensions import TypedDict

from .. import corpora
from ..core import tensor_file
from ..core.files import explain_output_errors, make_folder, sha256_file, write_bytes, write_json
from ..core.json_file import Count, check_schema, first_fault, json_if_any, read_json
from ..corpora import Corpus, Vocabulary
from ..errors import BottleneckError, Parameter, RunError
from .model import LanguageModel, ModelConfig, build

FORMAT = "softmax-bottleneck run 1"
CONFIG, VOCABULARY, MODEL, COMPLETE = "config.json", "vocabulary.json", "model.safetensors", "COMPLETE"
METRICS, TIMING, STATE = "metrics.jsonl", "timing.jsonl", "trainer_state"
CHECKPOINTS = "checkpoints"
_SEALED = CONFIG, VOCABULARY, MODEL, METRICS
_AGAIN = "train the run again or copy it anew"
_TIED = "head.weight"
_MODEL, _STATE = "model", "state"
"""Metadata keys of the two kinds of tensor file."""


class _Name(TypedDict):
    name: str


class _Model(TypedDict):
    backbone: _Name
    head: _Name
    tie_embeddings: bool


class _Text(TypedDict):
    name: str
    sha256: str


class _Config(TypedDict):
    """What every ``config.json`` holds."""

    format: str
    corpus: _Text
    model: _Model
    training: dict[str, Any]
    parameters: Count
    initial_sha256: NotRequired[str | None]
    machine: NotRequired[dict[str, Any]]


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run, read and checked."""

    path: Path
    config: Mapping[str, Any]
    """``config.json`` as written."""
    vocabulary: Vocabulary
    model: LanguageModel
    """In eval mode, on the CPU, float32."""

    def __repr__(self) -> str:
        """Return path, head, corpus and size on one line."""
        size = f"{self.model.parameter_count():,} parameters"
        return f"Run({str(self.path)!r}, {self.config['model']['head']['name']}, {self.corpus}, {size})"

    @property
    def corpus(self) -> str:
        """Name or path of the corpus that the run was trained on."""
        return str(self.config["corpus"]["name"])


def corpus_of(run: Run, data: Any = None, *, split: str = "test") -> Corpus:
    """Return the corpus a run was trained on, or ``data`` (see `corpora.read_data`), in the run's vocabulary.

    `CorpusError` for a missing corpus or a token outside the vocabulary, `RunError` when the run's own has changed.
    """
    if data is not None:
        return corpora.read_data(data, vocabulary=run.vocabulary, split=split)
    corpus = corpora.load(run.corpus, vocabulary=run.vocabulary)
    if corpus.sha256 != run.config["corpus"]["sha256"]:
        raise RunError(
            f"the corpus {corpus.name} is not the one {run.path} was trained on (its text has changed); bring the old "
            "one back, or name this one with ",
            Parameter("data", corpus.name),
            " to measure on it all the same",
        )
    return corpus


def is_run(path: Path) -> bool:
    """Return whether ``path`` is a run folder of this tool, finished or not."""
    config = json_if_any(path / CONFIG)
    return isinstance(config, dict) and config.get("format") == FORMAT


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


def write_state(run: Path, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Write the state of a training run after a step, in one file with one checksum, in place of the one before."""
    file = make_folder(run / STATE) / f"step-{step:09d}.safetensors"
    write_bytes(file, tensor_file.pack(tensors, key=_STATE, about=numbers))
    with explain_output_errors(file.parent):
        for old in state_files(run):
            if old != file:
                old.unlink()


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and numbers of a training run's state; `RunError` when it is damaged."""
    try:
        return tensor_file.read(path, key=_STATE)
    except tensor_file.DAMAGE as error:
        raise RunError(f"the saved state {path} is damaged ({error}); delete it to start the run over") from error


def state_files(folder: Path) -> list[Path]:
    """Return the saved states of a run, the latest last."""
    return sorted((folder / STATE).glob("step-*.safetensors"))


@torch.no_grad()
def load_tensors_into(
    model: LanguageModel, tensors: Mapping[str, Tensor], *, where: Path, unfit: str = "does not fit its config.json"
) -> None:
    """Fill a model's weights; `RunError`, that the file or folder is ``unfit``, when names, shapes or types differ."""
    expected = model_tensors(model)
    if different := sorted(set(tensors) ^ set(expected)):
        raise RunError(f"{where} {unfit}: tensor {different[0]!r} is missing or unexpected")
    for name, tensor in tensors.items():
        found, fitting = (f"{t.dtype} of shape {tuple(t.shape)}" for t in (tensor, expected[name]))
        if found not in (fitting, fitting.replace("float32", "bfloat16")):  # see `copy_weights`
            raise RunError(f"{where} {unfit}: {name!r} is {found}, not {fitting}")
        masked = tensor.isneginf() & (tensor.ndim == 1)  # a bias may mask tokens
        if not (tensor.isfinite() | masked).all():
            raise RunError(f"{where} is damaged: {name!r} holds a number that is not finite; {_AGAIN}")
        expected[name].copy_(tensor)


def read_config(path: Path) -> dict[str, Any]:
    """Return the ``config.json`` of a run folder, finished or not."""
    if path.is_file():
        raise RunError(f"{path} is a file, not a run folder")
    if not path.is_dir():
        raise RunError(f"the run folder {path} does not exist; 'bottleneck train --preset NAME --out {path}' makes one")
    file = path / CONFIG
    if not file.exists():
        raise RunError(f"{path} has no {CONFIG}, so it is not a run; 'bottleneck train' makes one")
    config = read_json(file, error=RunError, remedy=_AGAIN)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise RunError(
            f"{file} was not written by this tool (its format is not {FORMAT!r}); "
            "a run is a folder made by 'bottleneck train'"
        )
    try:
        check_schema(config, _Config)
    except ValueError as error:
        raise RunError(f"{file} is damaged ({error}); {_AGAIN}") from error
    return config


def load(path: str | Path, *, unfinished: bool = False, body: bool = True) -> Run:
    """Read a finished run and check every file against the hashes in ``COMPLETE``.

    With ``unfinished``, an unfinished run is accepted, with its best weights so far. Without ``body``, only the head
    gets its weights, and those of the backbone stay on the meta device. `RunError` when the folder is
    missing, unfinished, changed, or another tool's.
    """
    path = Path(path)
    config = read_config(path)
    if not (unfinished and (path / MODEL).exists() and not (path / COMPLETE).exists()):
        check_hashes(path)
    try:
        vocabulary = Vocabulary(tuple(read_json(path / VOCABULARY, list[str], error=RunError, remedy=_AGAIN)))
        with torch.random.fork_rng(devices=[]):  # the initial weights are drawn and then replaced
            with torch.device("cpu" if body else "meta"):
                model = build(ModelConfig.model_validate(config["model"]), vocab_size=len(vocabulary))
            if not body:
                model.make_head()
    except ValidationError as error:
        raise RunError(f"the run {path} cannot be read: {first_fault(error)}") from error
    except BottleneckError as error:  # sizes out of range, or the vocabulary
        raise RunError(f"the run {path} cannot be read: {error}") from error
    load_tensors_into(model, read_tensors(path / MODEL), where=path / MODEL)
    return Run(path, config, vocabulary, model.eval())


def copy_weights(run: str | Path, out: str | Path, *, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Copy a run without its training state, to move, measure and evaluate it.

    Args:
        run: folder of a finished run.
        out: folder of the copy, which must not exist yet; it is returned.
        dtype: type of the weights on disk, ``torch.float32`` or ``torch.bfloat16``. They are read as float32. With
            bfloat16 the copy is another model, whose weights are rounded to 8 significant bits.

    Raises:
        RunError: for a damaged run, a folder ``out`` that exists, or another type.
    """
    loaded, out = load(run), Path(out)
    if dtype not in (torch.float32, torch.bfloat16):
        raise RunError(f"weights are kept in float32 or bfloat16, not {dtype}")
    if out.exists():
        raise RunError(f"{out} exists already; give another folder")
    names = [name for name in (CONFIG, VOCABULARY, METRICS, TIMING) if (loaded.path / name).exists()]
    contents = {name: (loaded.path / name).read_bytes() for name in names}
    tensors = {name: tensor.to(dtype) for name, tensor in model_tensors(loaded.model).items()}
    _write_run(out, {**contents, MODEL: tensor_file.pack(tensors, key=_MODEL)})
    return out


def keep_checkpoint(run: Path, model: LanguageModel, *, step: int, metrics: bytes) -> Path:
    """Write the current weights as a finished run of their own, ``RUN/checkpoints/step-…``.

    It has the run's ``config.json`` and ``vocabulary.json``, so that every command reads it like a run, and in
    ``metrics`` the rows up to this validation. An existing checkpoint is kept, because a continued run reaches the same
    weights again. Return its folder.
    """
    out = run / CHECKPOINTS / f"step-{step:09d}"
    if not out.exists():
        contents = {name: (run / name).read_bytes() for name in (CONFIG, VOCABULARY)}
        _write_run(out, {**contents, METRICS: metrics, MODEL: tensor_file.pack(model_tensors(model), key=_MODEL)})
    return out


def _write_run(out: Path, contents: Mapping[str, bytes]) -> None:
    """Write a finished run atomically, because a partial one would look like an unfinished run."""
    part = make_folder(out.with_name(f".{out.name}.{uuid4().hex}.part"))  # a name that no folder has
    with explain_output_errors(out):
        try:
            for name, data in contents.items():
                write_bytes(part / name, data)
            write_complete(part)
            part.rename(out)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


def write_complete(path: Path) -> None:
    """Seal a run: write the hashes of its files."""
    write_json(path / COMPLETE, {"sha256": {name: sha256_file(path / name) for name in _SEALED}})


def check_hashes(path: Path) -> None:
    """Check the files of a finished run; `RunError` if it is unfinished, or one is missing or has changed."""
    if not (path / COMPLETE).exists():
        raise RunError(
            f"the run {path} is not finished (it has no {COMPLETE} file); "
            "run the same 'bottleneck train' command again to finish it"
        )
    hashes = read_json(path / COMPLETE, dict[str, dict[str, str]], error=RunError, remedy=_AGAIN).get("sha256", {})
    if missing := [name for name in _SEALED if name not in hashes]:
        raise RunError(f"{path / COMPLETE} is damaged: it has no hash of {missing[0]}; train the run again")
    for name, expected in hashes.items():
        file = path / name
        try:
            changed = sha256_file(file) != expected
        except OSError as error:
            raise RunError(f"cannot read {file}: {error.strerror}; {_AGAIN}") from error
        if changed:
            raise RunError(f"{file} has changed since the run was finished; {_AGAIN}")
