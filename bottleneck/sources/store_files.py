"""The log-probability store on disk: a Zarr v3 group that is written block by block and survives any kill.

``log_probs`` is (T, M) in chunks of whole rows, uncompressed; its fill value is NaN, so that a missing chunk is never
read as zeros. ``targets`` is (T,). The group's attributes hold the provenance and their own SHA-256, and the arrays'
shapes and types are checked against them. ``manifest.jsonl`` has one line for each finished chunk, with the SHA-256 of
its rows.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, final

import numpy as np
import zarr
from annotated_types import Interval
from numpy.typing import NDArray
from typing_extensions import TypedDict
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from ..core.files import is_special, open_file, sha256_bytes, sha256_json
from ..core.json_file import Count, check_schema, parse_json
from ..errors import StoreError

FORMAT = "softmax-bottleneck log-probability store 1"
LOG_PROBS, TARGETS, MANIFEST = "log_probs", "targets", "manifest.jsonl"

SHA256 = "sha256"
"""Attribute with the checksum of all others."""
_Size = Annotated[int, Interval(ge=1, lt=2**48)]
UNREADABLE = (OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, ArithmeticError, MemoryError)
"""Errors that Zarr raises for metadata or chunks that are lost or damaged."""

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
    replaced: NotRequired[str]
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


@final
class RegularFiles(LocalStore):
    """A folder of which regular files alone are read: a pipe or a device may hang or never end."""

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the bytes of a file, ``None`` without one; ``OSError`` for a pipe or a device."""
        self._check(key)
        return await super().get(key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return parts of files as `get` does."""
        parts = list(key_ranges)
        for key, _ in parts:
            self._check(key)
        return await super().get_partial_values(prototype, parts)

    def _check(self, key: str) -> None:
        if is_special(self.root / key):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(self.root / key))


def is_store(path: Path) -> bool:
    """Return whether ``path`` looks like a Zarr store."""
    return path.is_dir() and (path.suffix == ".zarr" or (path / "zarr.json").exists())


def open_group(path: Path) -> Any:
    """Return the group of a store, for writing where its folder allows it; one of `UNREADABLE` if it is damaged."""
    store = RegularFiles(path, read_only=not os.access(path, os.W_OK))
    return zarr.open_group(store=store, mode="r+" if os.access(path, os.W_OK) else "r", zarr_format=3)


def read_attributes(path: Path) -> dict[str, Any]:
    """Return the provenance of a store.

    Raises:
        StoreError: when there is no store, or it was not written by `dump`.
    """
    if not path.is_dir():
        raise StoreError(f"there is no store {path}; 'bottleneck dump RUN --out {path}' makes one")
    try:
        attributes = dict(open_group(path).attrs)
    except UNREADABLE as error:
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
    kept = {key: value for key, value in attributes.items() if key != SHA256}
    try:
        if attributes.get(SHA256) not in (None, sha256_json(kept)):
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
    """Return the finished chunks, by the index of their first row; an incomplete line ends the manifest."""
    chunks: dict[int, Chunk] = {}
    for line in _manifest_bytes(path).splitlines() if (path / MANIFEST).exists() else ():
        try:
            chunk = Chunk(**parse_json(line, _Line))
        except (ValueError, TypeError):
            break
        chunks[chunk.start] = chunk
    return chunks


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
    values = stored_rows(path, chunks[start], attributes)
    if values is None:
        raise StoreError(
            f"chunk {start // attributes['chunk_rows']} of {path} (rows {start} to "
            f"{start + chunks[start].rows - 1}) is missing or does not hold what was written; repeat the "
            "'bottleneck dump' that made the store to write it anew"
        )
    return values


def stored_rows(path: Path, chunk: Chunk, attributes: Mapping[str, Any]) -> NDArray[Any] | None:
    """Return a chunk's rows, or ``None`` if they are missing or damaged."""
    try:
        array = open_group(path)[LOG_PROBS]
        if not is_as_written(array, attributes):
            return None
        values = np.ascontiguousarray(array[chunk.start : chunk.start + chunk.rows])
    except UNREADABLE:
        return None
    return values if sha256_bytes(values.data.cast("B")) == chunk.sha256 else None


def manifest_sha256(path: Path) -> str:
    """Return the hash of a store's manifest, which covers the hashes of all rows."""
    return sha256_bytes(_manifest_bytes(path))


def read_targets(path: Path) -> NDArray[np.int64] | None:
    """Return the token that follows each context, (T,), or ``None`` if the source did not know it."""
    try:
        targets = np.asarray(open_group(path)[TARGETS][:])
    except UNREADABLE:
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


def check_kind(kind: str, attributes: Mapping[str, Any], path: str) -> None:
    """Refuse a ``kind`` that was asked for and is not what the store records: its rows stay as they were dumped."""
    recorded = attributes["source"].get("kind")
    if kind not in ("log-probs", recorded):
        raise StoreError(
            f"the store {path} records what it holds ({recorded}), so --kind {kind} does not apply: leave it out, or "
            "dump the source itself again with that kind"
        )


def _manifest_bytes(path: Path) -> bytes:
    try:
        with open_file(path / MANIFEST) as file:
            return file.read()
    except OSError as error:
        raise StoreError(f"{path / MANIFEST} cannot be read ({error.strerror}): dump into another store") from error
