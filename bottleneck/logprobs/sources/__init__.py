"""The kinds of SOURCE, one file each, and how a name on the command line becomes one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zarr

from ...checkpoint import Run, is_run
from ...errors import ConfigurationError, RunError, SourceError
from ..base import Source
from ..store import is_store
from .function import Adapter, from_function
from .hf_folder import is_hub_id, is_hugging_face
from .hf_on_text import HuggingFaceOptions
from .hugging_face import HuggingFaceSource, open_hugging_face
from .matrix import MatrixSource, from_blocks, open_matrix
from .model import ModelSource
from .ngram import NGramSource, is_ngram
from .run import RunSource
from .store import StoreSource
from .views import FiniteColumns, FirstContexts
from .zarr_array import from_array, is_plain_array, is_url, open_zarr

_TENSOR = re.compile(r"^(?P<file>.+\.safetensors):(?P<tensor>[^/]+)$")


def open_source(
    source: Any,
    *,
    data: Any = None,
    split: str = "test",
    contexts: int | None = None,
    kind: str = "log-probs",
    dtype: str = "float32",
    device: str = "cpu",
    vocab_size: int | None = None,
    hugging_face: HuggingFaceOptions | None = None,
) -> Source:
    """Return what ``source`` names: a model, a store, a matrix, or a function.

    Args:
        source: a path, the name of a model on the Hugging Face hub, a loaded `Run`, a (T, M) array or tensor, an
            iterable of (n, M) blocks, a function from ids to logits, an `Adapter`, or a `Source`.
        data: corpus for a run, when not the one it was trained on; corpus or ``.txt`` file for a Hugging Face model;
            batches of ids for a function.
        split: of the corpus.
        contexts: only the first so many.
        kind: what a matrix holds: ``"log-probs"``, ``"logits"`` or ``"matrix"``.
        dtype: what a model is evaluated in.
        device: where a model is evaluated.
        vocab_size: M of a function.
        hugging_face: how a Hugging Face model is read.

    Raises:
        SourceError: when it is none of these, or ``contexts`` are more than there are.
        RunError: a run that is unfinished, changed or another tool's.
        StoreError: a store that is incomplete or damaged.
        CorpusError: a corpus that is not there or does not fit the run's vocabulary.
        ConfigurationError: ``data`` for what has its own, an unknown dtype or kind.
    """
    opened: Source
    if isinstance(source, Source):
        opened = source
    elif isinstance(source, str | Path):
        options = {"data": data, "split": split, "contexts": contexts, "dtype": dtype, "device": device}
        opened = _open_path(str(source), kind, hugging_face, **options)
    elif isinstance(source, Run):
        opened = RunSource(source, data=data, split=split, contexts=contexts, dtype=dtype, device=device)
    elif isinstance(source, zarr.Array):
        opened = from_array(source, kind=kind, path=str(source.store_path))
    elif hasattr(source, "shape"):
        opened = MatrixSource(source, kind=kind)
    elif callable(source) or isinstance(source, Adapter):
        opened = from_function(source, data=data, vocab_size=vocab_size)
    elif isinstance(source, Iterable):
        opened = from_blocks(source, kind=kind)
    else:
        raise SourceError(
            f"a {type(source).__name__} cannot be measured; give a path, a Run, a (T, M) array or tensor, blocks of "
            "rows, or a function from ids to logits"
        )
    model = RunSource | NGramSource | HuggingFaceSource
    has_text = isinstance(opened, model) or callable(source) or isinstance(source, Adapter)
    if data is not None and (opened is source or not has_text):
        raise ConfigurationError("--data chooses the text a model is evaluated on; a matrix has its own")
    if hugging_face not in (None, HuggingFaceOptions()) and not isinstance(opened, HuggingFaceSource):
        raise ConfigurationError(
            f"{opened.description['path']} is no Hugging Face model: leave out the options for how one is read "
            "(--revision, --context-length, --stride, --bos, --batch-size, --vocab, --precise, --hf-dataset, "
            "--allow-pickle)"
        )
    return opened if contexts in (None, opened.shape[0]) else FirstContexts(opened, contexts)


def _open_path(name: str, kind: str, hugging_face: HuggingFaceOptions | None, **model_options: Any) -> Source:
    if is_url(name):
        return open_zarr(name, kind=kind)
    if is_ngram(name):
        return NGramSource(name, **{key: model_options[key] for key in ("data", "split", "contexts")})
    path = Path(name)
    named = _TENSOR.match(name)
    if named and not path.exists():
        return open_matrix(Path(named["file"]), tensor=named["tensor"], kind=kind)
    if path.suffix in (".npy", ".safetensors"):
        return open_matrix(path, tensor=None, kind=kind)
    if path.suffix == ".zarr" or is_store(path):
        return open_zarr(name, kind=kind) if is_plain_array(path) else StoreSource(path)
    if is_run(path):
        return RunSource(path, **model_options)
    if is_hugging_face(path) or (not path.exists() and is_hub_id(name)):
        return open_hugging_face(name, options=hugging_face, **model_options)
    if (path / "config.json").exists():
        raise RunError(f"{path}/config.json was not written by this tool; a run is a folder made by 'bottleneck train'")
    if path.is_dir():
        raise RunError(f"{path} holds no run: it has no config.json; 'bottleneck train --out {path}' makes one")
    what = "a run folder, a .zarr store, a .npy or a .safetensors file, or a Hugging Face model's folder or name"
    if not path.exists():
        raise SourceError(f"there is no {path}; SOURCE is {what}")
    raise SourceError(f"{path} is no SOURCE; it must be {what}")


__all__ = [
    "Adapter",
    "FiniteColumns",
    "FirstContexts",
    "HuggingFaceOptions",
    "HuggingFaceSource",
    "MatrixSource",
    "ModelSource",
    "NGramSource",
    "RunSource",
    "StoreSource",
    "from_blocks",
    "from_function",
    "open_hugging_face",
    "open_matrix",
    "open_source",
    "open_zarr",
]
