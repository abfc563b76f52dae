"""Writing a log-probability store block by block, so that a kill at any moment loses at most one block."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import MemoryStore

from ..core.files import (
    explain_output_errors,
    json_lines,
    make_folder,
    only_process,
    sha256_bytes,
    sha256_json,
    write_bytes,
)
from ..core.json_file import json_if_any
from ..core.progress import SILENT, Progress
from ..core.version import __version__
from ..errors import OutputError, StoreError
from ..language_models.source import Source
from ..spectrum.blocks import checked
from .store_files import (
    FORMAT,
    LOG_PROBS,
    MANIFEST,
    SHA256,
    TARGETS,
    UNKNOWN_TARGET,
    UNREADABLE,
    Chunk,
    open_group,
    read_attributes,
    read_manifest,
    read_targets,
    stored_rows,
)

_LEFT_OVER = re.compile(rf"\.[0-9a-f]{{32}}\.partial$|^\.{re.escape(MANIFEST)}\.[0-9a-f]+\.part$")


def write_store(source: Source, path: str | Path, *, progress: Progress = SILENT) -> Path:
    """Write an opened source's matrix to a store, or finish a store that was begun; see `measure.dump`."""
    path = Path(path)
    attributes = _attributes(source)
    _refuse_other_files(path)
    with only_process(make_folder(path)) as alone:
        if not alone:
            raise StoreError(f"another process is dumping into {path}: wait until it is done, or give another --out")
        _write(source, path, attributes, progress)
    return path


def _write(source: Source, path: Path, attributes: Mapping[str, Any], progress: Progress) -> None:
    """Write the chunks that are not finished."""
    done = _begin(path, source, dict(attributes))
    if sum(chunk.rows for chunk in done) == source.shape[0]:
        return
    array = open_group(path)[LOG_PROBS]
    rows = attributes["chunk_rows"]
    finished = {chunk.start for chunk in done}
    with progress.bar(f"dumping {path.name}", source.shape[0], "contexts") as bar:
        bar.advance(sum(chunk.rows for chunk in done))
        for block in source.blocks(each for each in source.ranges(rows) if each.start not in finished):
            written = np.ascontiguousarray(block.log_probs)
            (values,) = checked([written], what=_name(source), start=block.start, minus_inf=True)
            with explain_output_errors(path):
                array[block.start : block.start + len(values)] = values
                _append(path, Chunk(block.start, len(values), sha256_bytes(values.data.cast("B"))))
            bar.advance(len(values))
    _write_manifest(path, read_manifest(path).values())


def _name(source: Source) -> str:
    return str(source.description["path"])


def _attributes(source: Source) -> dict[str, Any]:
    rare = {
        "caution": source.rank_warning(source.precision.value),
        "replaced": source.entry_warning(),
        "exponent": source.exponent,
    }
    return {
        **{key: value for key, value in rare.items() if value},
        "format": FORMAT,
        "source": dict(source.description),
        "identity": dict(source.identity),
        "targets_sha256": sha256_bytes(_targets(source).tobytes()),
        "contexts": source.shape[0],
        "vocab": source.shape[1],
        "chunk_rows": source.rows_at_once(),
        "dtype": source.dtype,
        "eps": source.precision.to_dict(),
        "bound": asdict(source.bound),
        "embedding_size": source.embedding_size,
        "version": __version__,
    }


def _refuse_other_files(path: Path) -> None:
    """Refuse a file, or a folder that holds something else than a store."""
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file; name another place")
    if not (path / MANIFEST).exists() and not _is_only_begun(path):
        raise StoreError(f"{path} is not empty and holds no store; name another place")


def _is_only_begun(path: Path) -> bool:
    """Return whether a folder without a manifest is absent, empty, or left by an interrupted `_create`."""
    if not path.exists():
        return True
    names = {item.name for item in path.iterdir() if not _is_left_over(item)}
    if not names:
        return True
    if not names <= {"zarr.json", LOG_PROBS, TARGETS}:
        return False
    metadata = json_if_any(path / "zarr.json")
    attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
    return isinstance(attributes, dict) and attributes.get("format") == FORMAT


def _is_left_over(file: Path) -> bool:
    """Return whether this is a temporary file of Zarr or `write_bytes` that an interruption left behind."""
    return _LEFT_OVER.search(file.name) is not None


def _begin(path: Path, source: Source, attributes: dict[str, Any]) -> list[Chunk]:
    """Create the store, or check a store that was begun; return its finished chunks that are undamaged."""
    if not (path / MANIFEST).exists():
        with explain_output_errors(make_folder(path)):
            _create(path, source, attributes)
        _write_manifest(path, [])
        return []
    old = read_attributes(path)
    if different := _differences(old, attributes):
        raise StoreError(f"{path} holds another dump: {different[0]}; name another place")
    _sweep(path)
    whole = [chunk for chunk in read_manifest(path).values() if stored_rows(path, chunk, attributes) is not None]
    if not _has_arrays(path, source, attributes):
        with explain_output_errors(path):
            _create(path, source, attributes)
        whole = []
    _write_manifest(path, whole)
    return whole


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the differences of two dumps, the most telling first; different paths of the source do not count."""
    rows = [
        f"{key} {old['source'].get(key)!r}, not {new['source'].get(key)!r}"
        for key in ("head", "corpus", "split", "kind")
        if old["source"].get(key) != new["source"].get(key)
    ]
    keys = ["contexts", "vocab", "identity", "dtype", "eps", *sorted({*old, *new} - {"source"})]
    for key in keys:
        before, now = old.get(key), new.get(key)
        if key == "identity" and before != now and isinstance(before, dict) and isinstance(now, dict):
            changed = [part for part in {**before, **now} if before.get(part) != now.get(part)]
            rows.append(f"another {' and another '.join(changed)}, by the checksum")
        elif before != now:
            rows.append(f"{key} {before!r}, not {now!r}")
    return rows


def _has_arrays(path: Path, source: Source, attributes: dict[str, Any]) -> bool:
    """Return whether both arrays have the layout of `_create` and the targets are undamaged."""
    laid_out = _create(MemoryStore(), source, attributes)
    try:
        arrays = open_group(path)
        for name in (LOG_PROBS, TARGETS):
            if sha256_json(arrays[name].metadata.to_dict()) != sha256_json(laid_out[name].metadata.to_dict()):
                return False
        read_targets(path)
    except (*UNREADABLE, StoreError):
        return False
    return True


def _sweep(path: Path) -> None:
    for file in path.rglob("*"):
        if _is_left_over(file):
            file.unlink()


def _create(place: Path | MemoryStore, source: Source, attributes: dict[str, Any]) -> zarr.Group:
    """Create an empty store; files of an earlier attempt are overwritten."""
    sealed = {**attributes, SHA256: sha256_json(attributes)}
    group = zarr.create_group(store=place, overwrite=True, attributes=sealed, zarr_format=3)
    group.create_array(
        LOG_PROBS,
        shape=source.shape,
        chunks=(attributes["chunk_rows"], source.shape[1]),
        dtype=attributes["dtype"],
        fill_value=float("nan"),
        compressors=None,
    )
    group.create_array(
        TARGETS, data=_targets(source), chunks=(source.shape[0],), fill_value=UNKNOWN_TARGET, compressors=None
    )
    return group


def _targets(source: Source) -> NDArray[np.int64]:
    unknown = np.full(source.shape[0], UNKNOWN_TARGET)
    return unknown if source.targets is None else np.ascontiguousarray(source.targets, dtype=np.int64)


def _write_manifest(path: Path, chunks: Iterable[Chunk]) -> None:
    ordered = sorted(chunks, key=lambda chunk: chunk.start)
    write_bytes(path / MANIFEST, json_lines(map(asdict, ordered)))


def _append(path: Path, chunk: Chunk) -> None:
    with (path / MANIFEST).open("ab") as file:
        file.write(json_lines([asdict(chunk)]))
        file.flush()
        os.fsync(file.fileno())
