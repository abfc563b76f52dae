"""The log-probability store on disk: a Zarr v3 group that is written block by block and survives any kill.

``log_probs`` is (T, M) in chunks of whole rows, uncompressed; its fill value is NaN, so that a missing chunk is never
read as zeros. ``targets`` is (T,). The group's attributes hold the provenance and their own SHA-256, and the arrays'
shapes and types are checked against them. ``manifest.jsonl`` has one line for each finished chunk, with the SHA-256 of
its rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
import zarr
from annotated_types import Interval
from numpy.typing import NDArray
from typing_extensions import TypedDict
from zarr.storage import MemoryStore

from .._version import __version__
from ..errors import OutputError, StoreError
from ..files import explain_output_errors, json_lines, make_folder, only_process, sha256_bytes, sha256_json, write_bytes
from ..json_file import Count, check_schema, json_if_any, parse_json
from ..progress import SILENT, Progress
from ..spectrum.blocks import checked
from .base import Source

FORMAT = "softmax-bottleneck log-probability store 1"
LOG_PROBS, TARGETS, MANIFEST = "log_probs", "targets", "manifest.jsonl"

_SHA256 = "sha256"
_Size = Annotated[int, Interval(ge=1, lt=2**48)]
_UNREADABLE = (OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, ArithmeticError, MemoryError)
"""Errors that Zarr raises for metadata or chunks that are lost or damaged."""

_LEFT_OVER = re.compile(rf"\.[0-9a-f]{{32}}\.partial$|^\.{re.escape(MANIFEST)}\.[0-9]+\.part$")

UNKNOWN_TARGET = np.int64(-1)
"""Entry of ``targets`` for an unknown token."""


class _Attributes(TypedDict):
    """The provenance of a store."""

    source: dict[str, Any]
    identity: dict[str, Any]
    targets_sha256: str
    contexts: _Size
    vocab: _Size
    chunk_rows: _Size
    dtype: Literal["float32", "float64"]
    eps: dict[str, Any]
    bound: dict[str, Any]
    embedding_size: _Size | None
    caution: NotRequired[str]
    exponent: NotRequired[int]


class _Line(TypedDict):
    """A line of the manifest."""

    start: Count
    rows: _Size
    sha256: str


@dataclass(frozen=True)
class Chunk:
    """A finished chunk in the manifest."""

    start: int
    """Index of its first row."""
    rows: int
    sha256: str
    """SHA-256 of the bytes of its rows."""


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
    array = _open(path)[LOG_PROBS]
    rows = attributes["chunk_rows"]
    finished = {chunk.start for chunk in done}
    with progress.bar(f"dumping {path.name}", source.shape[0], "contexts") as bar, explain_output_errors(path):
        bar.advance(sum(chunk.rows for chunk in done))
        for block in source.blocks(each for each in source.ranges(rows) if each.start not in finished):
            written = np.ascontiguousarray(block.log_probs)
            (values,) = checked([written], what=_name(source), start=block.start, minus_inf=True)
            array[block.start : block.start + len(values)] = values
            _append(path, Chunk(block.start, len(values), sha256_bytes(values.data.cast("B"))))
            bar.advance(len(values))
    _write_manifest(path, _manifest(path))


def _name(source: Source) -> str:
    return str(source.description["path"])


def is_store(path: Path) -> bool:
    """Return whether ``path`` looks like a Zarr store."""
    return path.is_dir() and (path.suffix == ".zarr" or (path / "zarr.json").exists())


def read_attributes(path: Path) -> dict[str, Any]:
    """Return the provenance of a store.

    Raises:
        StoreError: when there is no store, or it was not written by `dump`.
    """
    if not path.is_dir():
        raise StoreError(f"there is no store {path}; 'bottleneck dump RUN --out {path}' makes one")
    try:
        attributes = dict(_open(path).attrs)
    except _UNREADABLE as error:
        raise StoreError(f"{path} is not a store of 'bottleneck dump': {error}; dump again") from error
    if attributes.get("format") != FORMAT:
        raise StoreError(
            f"{path} was not written by 'bottleneck dump' (its format is not {FORMAT!r}); give the folder of a store"
        )
    attributes = checked_attributes(attributes, path)
    if not (path / MANIFEST).exists():
        raise StoreError(f"the store {path} was only begun; run the same 'bottleneck dump' again to finish it")
    return attributes


def checked_attributes(attributes: dict[str, Any], store: str | Path) -> dict[str, Any]:
    """Return a store's attributes without their checksum, which old stores lack; `StoreError` if it does not match."""
    kept = {key: value for key, value in attributes.items() if key != _SHA256}
    try:
        if attributes.get(_SHA256) not in (None, sha256_json(kept)):
            raise ValueError("they are not those that were written")
        check_schema(kept, _Attributes)
    except ValueError as error:
        raise StoreError(f"the attributes of {store} are damaged ({error}): dump into another one") from error
    return kept


def is_as_written(array: Any, attributes: Mapping[str, Any]) -> bool:
    """Return whether the array of a store's rows has the recorded shape and type."""
    shape = (attributes["contexts"], attributes["vocab"])
    return bool(array.shape == shape and array.dtype == np.dtype(attributes["dtype"]))


def read_manifest(path: Path) -> dict[int, Chunk]:
    """Return the finished chunks, by the index of their first row."""
    return {chunk.start: chunk for chunk in _manifest(path)}


def read_chunk(path: Path, attributes: Mapping[str, Any], chunks: Mapping[int, Chunk], start: int) -> NDArray[Any]:
    """Return the log-probabilities of the chunk that begins with row ``start``, checked against the manifest.

    Raises:
        StoreError: when the chunk is missing or damaged.
    """
    if start not in chunks:
        raise StoreError(
            f"the store {path} is not complete: rows from {start} on are missing; run the same 'bottleneck dump' "
            "again to finish it"
        )
    values = _read(path, chunks[start], attributes)
    if values is None:
        raise StoreError(
            f"chunk {start // attributes['chunk_rows']} of {path} (rows {start} to "
            f"{start + chunks[start].rows - 1}) is missing or does not hold what was written; repeat the "
            "'bottleneck dump' that made the store to write it anew"
        )
    return values


def _read(path: Path, chunk: Chunk, attributes: Mapping[str, Any]) -> NDArray[Any] | None:
    """Return a chunk's rows, or ``None`` if they are missing or damaged."""
    try:
        array = _open(path)[LOG_PROBS]
        if not is_as_written(array, attributes):
            return None
        values = np.ascontiguousarray(array[chunk.start : chunk.start + chunk.rows])
    except _UNREADABLE:
        return None
    return values if sha256_bytes(values.data.cast("B")) == chunk.sha256 else None


def manifest_sha256(path: Path) -> str:
    """Return the hash of a store's manifest, which covers the hashes of all rows."""
    return sha256_bytes(_manifest_bytes(path))


def read_targets(path: Path) -> NDArray[np.int64] | None:
    """Return the token that follows each context, (T,), or ``None`` if the source did not know it."""
    try:
        targets = np.asarray(_open(path)[TARGETS][:])
    except _UNREADABLE:
        targets = np.zeros(0, np.int64)
    return known_targets(targets, read_attributes(path), path)


def known_targets(
    targets: NDArray[np.int64], attributes: Mapping[str, Any], store: str | Path
) -> NDArray[np.int64] | None:
    """Return a store's targets, or ``None`` if they are unknown; `StoreError` if they are missing or damaged."""
    if targets.dtype != np.int64 or sha256_bytes(targets.tobytes()) != attributes.get("targets_sha256"):
        raise StoreError(
            f"the targets of {store} are missing or do not hold what was written; repeat the 'bottleneck dump' that "
            "made the store to write them anew"
        )
    return None if (targets == UNKNOWN_TARGET).all() else targets


def _attributes(source: Source) -> dict[str, Any]:
    rare = {"caution": source.caution(source.precision.value), "exponent": source.exponent}
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
    whole = [chunk for chunk in _manifest(path) if _read(path, chunk, attributes) is not None]
    if not _has_arrays(path, source, attributes):
        with explain_output_errors(path):
            _create(path, source, attributes)
        whole = []
    _write_manifest(path, whole)
    return whole


def check_kind(kind: str, attributes: Mapping[str, Any], path: str) -> None:
    """Refuse a ``kind`` that was asked for and is not what the store records: its rows stay as they were dumped."""
    recorded = attributes["source"].get("kind")
    if kind not in ("log-probs", recorded):
        raise StoreError(
            f"the store {path} records what it holds ({recorded}), so --kind {kind} does not apply: leave it out, or "
            "dump the source itself again with that kind"
        )


def _refuse_other_files(path: Path) -> None:
    """Refuse a file, or a folder that holds something else than a store."""
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file; name another place")
    if not (path / MANIFEST).exists() and not _is_only_begun(path):
        raise StoreError(f"{path} is not empty and holds no store; name another place")


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
        arrays = _open(path)
        for name in (LOG_PROBS, TARGETS):
            if sha256_json(arrays[name].metadata.to_dict()) != sha256_json(laid_out[name].metadata.to_dict()):
                return False
        read_targets(path)
    except (*_UNREADABLE, StoreError):
        return False
    return True


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


def _sweep(path: Path) -> None:
    for file in path.rglob("*"):
        if _is_left_over(file):
            file.unlink()


def _create(place: Path | MemoryStore, source: Source, attributes: dict[str, Any]) -> zarr.Group:
    """Create an empty store; files of an earlier attempt are overwritten."""
    sealed = {**attributes, _SHA256: sha256_json(attributes)}
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


def _open(path: Path) -> Any:
    return zarr.open_group(store=path, mode="r+" if os.access(path, os.W_OK) else "r", zarr_format=3)


def _write_manifest(path: Path, chunks: list[Chunk]) -> None:
    ordered = sorted(chunks, key=lambda chunk: chunk.start)
    write_bytes(path / MANIFEST, json_lines(map(asdict, ordered)))


def _append(path: Path, chunk: Chunk) -> None:
    with (path / MANIFEST).open("ab") as file:
        file.write(json_lines([asdict(chunk)]))
        file.flush()
        os.fsync(file.fileno())


def _manifest(path: Path) -> list[Chunk]:
    """Return the finished chunks; an incomplete line ends the list."""
    chunks: list[Chunk] = []
    if not (path / MANIFEST).exists():
        return chunks
    for line in _manifest_bytes(path).splitlines():
        try:
            chunks.append(Chunk(**parse_json(line, _Line)))
        except (ValueError, TypeError):
            break
    return chunks


def _manifest_bytes(path: Path) -> bytes:
    try:
        return (path / MANIFEST).read_bytes()
    except OSError as error:
        raise StoreError(f"{path / MANIFEST} cannot be read ({error.strerror}): dump into another store") from error
