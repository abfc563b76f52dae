"""The kinds of SOURCE, one file each, and how a name on the command line becomes one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...checkpoint import Run, is_run
from ...errors import ConfigurationError, RunError, SourceError
from ..base import Source
from ..store import is_store
from .first import FirstContexts
from .matrix import MatrixSource, from_blocks, open_matrix
from .run import RunSource
from .store import StoreSource

_TENSOR = re.compile(r"^(?P<file>.+\.safetensors):(?P<tensor>[^/]+)$")


def open_source(
    source: Any,
    *,
    data: str | None = None,
    split: str = "test",
    contexts: int | None = None,
    kind: str = "log-probs",
    dtype: str = "float32",
    device: str = "cpu",
) -> Source:
    """Return what ``source`` names: a run folder, a store, a matrix file, an array, or blocks of rows.

    Args:
        source: a path, a loaded `Run`, a (T, M) array or tensor, an iterable of (n, M) blocks, or a `Source`.
        data: corpus for a run, when not the one it was trained on.
        split: of the corpus.
        contexts: only the first so many.
        kind: what a matrix holds: ``"log-probs"``, ``"logits"`` or ``"matrix"``.
        dtype: what a run is evaluated in.
        device: where a run is evaluated.

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
        opened = _open_path(Path(source), kind, data=data, split=split, contexts=contexts, dtype=dtype, device=device)
    elif isinstance(source, Run):
        opened = RunSource(source, data=data, split=split, contexts=contexts, dtype=dtype, device=device)
    elif hasattr(source, "shape"):
        opened = MatrixSource(source, kind=kind)
    elif isinstance(source, Iterable):
        opened = from_blocks(source, kind=kind)
    else:
        raise SourceError(
            f"a {type(source).__name__} cannot be measured; give a path, a Run, a (T, M) array or tensor, or blocks of "
            "rows"
        )
    if data is not None and (opened is source or not isinstance(opened, RunSource)):
        raise ConfigurationError("--data chooses the text a run is evaluated on; a matrix has its own")
    return opened if contexts in (None, opened.shape[0]) else FirstContexts(opened, contexts)


def _open_path(path: Path, kind: str, **run_options: Any) -> Source:
    named = _TENSOR.match(str(path))
    if named and not path.exists():
        return open_matrix(Path(named["file"]), tensor=named["tensor"], kind=kind)
    if path.suffix in (".npy", ".safetensors"):
        return open_matrix(path, tensor=None, kind=kind)
    if path.suffix == ".zarr" or is_store(path):
        return StoreSource(path)
    if is_run(path):
        return RunSource(path, **run_options)
    if (path / "config.json").exists():
        raise RunError(f"{path}/config.json was not written by this tool; a run is a folder made by 'bottleneck train'")
    if path.is_dir():
        raise RunError(f"{path} holds no run: it has no config.json; 'bottleneck train --out {path}' makes one")
    if not path.exists():
        raise SourceError(f"there is no {path}; SOURCE is a run folder, a .zarr store, a .npy or a .safetensors file")
    raise SourceError(f"{path} is no SOURCE; it must be a run folder, a .zarr store, a .npy or a .safetensors file")


__all__ = ["FirstContexts", "MatrixSource", "RunSource", "StoreSource", "from_blocks", "open_matrix", "open_source"]
