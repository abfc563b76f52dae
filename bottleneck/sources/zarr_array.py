"""A plain Zarr array, or a store at a URL."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import zarr
from numpy.typing import NDArray

from ..core.json_file import json_if_any
from ..core.machine import free_memory
from ..errors import BottleneckError, SourceError, StoreError
from ..heads import RankBound
from ..spectrum import Precision
from .matrix import MatrixSource
from .opening import Kind
from .store_files import (
    FORMAT,
    LOG_PROBS,
    TARGETS,
    RegularFiles,
    check_kind,
    checked_attributes,
    is_as_written,
    known_targets,
)

SECONDS_A_REQUEST, SECONDS_WITHOUT_A_BYTE = 300.0, 30.0
"""Longest time that a web server may take to send a chunk, and to send nothing."""
LARGEST_BODY = 256 << 20
"""Bytes of the largest answer of a web server that is read."""
LOCAL = "file://"
_URL = re.compile(r"[a-z][a-z0-9+.]*://.+|[a-z][a-z0-9+.]*::.+")


def is_url(source: Any) -> bool:
    """Return whether a source is a URL of fsspec: ``s3://bucket/m.zarr``, ``https://…``, ``simplecache::s3://…``."""
    return isinstance(source, str) and _URL.fullmatch(source) is not None


def is_plain_array(source: Any) -> bool:
    """Return whether a source is the folder of a Zarr array, and not of a group such as a store."""
    if not isinstance(source, str):
        return False
    path = Path(source)
    if (path / ".zarray").exists():
        return True
    metadata = json_if_any(path / "zarr.json")
    return isinstance(metadata, dict) and metadata.get("node_type") == "array"


def open_zarr(name: str, *, kind: str = "log-probs") -> MatrixSource:
    """Open a two-dimensional array, or the rows of a dumped store; chunks are read on demand.

    Zarr reads a chunk that was never written as the fill value, often zero; such a chunk is refused instead.

    A store at a URL is read with its recorded precision, bound and targets. Chunks that were never written are NaN and
    refused; checksums are checked only for a store on a local disk.

    Raises:
        SourceError: when there is no array, its server does not give it, or its file system needs a package that is
            not installed.
        StoreError: for a group that ``bottleneck dump`` did not write.
    """
    with _as_source_errors(name):
        if is_url(name) and not name.startswith(LOCAL):
            node = zarr.open(store=name, mode="r", storage_options=_limits(name))
        else:
            node = zarr.open(store=RegularFiles(Path(name.removeprefix(LOCAL)), read_only=True), mode="r")
        if not isinstance(node, zarr.Group):
            return from_array(node, kind=kind, path=name)
        attributes: dict[str, Any] = dict(node.attrs)
        if attributes.get("format") != FORMAT:
            raise StoreError(f"{name} is a group that 'bottleneck dump' did not write: name one array of it")
        return _store(name, node, checked_attributes(attributes, name), kind)


def _limits(name: str) -> dict[str, Any] | None:
    """Return the options of fsspec that end a request to a web server which hangs, drips or sends without end."""
    if not name.startswith(("http://", "https://")):
        return None  # other file systems have limits of their own
    from aiohttp import ClientResponse, ClientTimeout

    class Limited(ClientResponse):
        """An answer of limited size, also after it is unpacked."""

        async def read(self) -> bytes:
            """Return the body; ``ValueError`` if it is larger than `LARGEST_BODY`."""
            body = bytearray()
            async for piece in self.content.iter_any():
                body += piece
                if len(body) > LARGEST_BODY:
                    self.close()
                    raise ValueError(f"the server sends more than {LARGEST_BODY:,} bytes for one chunk or description")
            return bytes(body)

    timeout = ClientTimeout(total=SECONDS_A_REQUEST, sock_read=SECONDS_WITHOUT_A_BYTE)
    return {"client_kwargs": {"timeout": timeout, "response_class": Limited}}


@contextmanager
def _as_source_errors(name: str) -> Iterator[None]:
    """Turn any error of Zarr, a codec or a file system into one `SourceError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a server may give the same answer for every name
            yield
    except BottleneckError:
        raise
    except ImportError as error:
        raise SourceError(f"{name} needs a package that is not installed ({error}): install it with pip") from error
    except Exception as error:
        raise SourceError(f"{name} cannot be read ({_reason(error)}): check its name, or copy it again") from error


def _reason(error: Exception) -> str:
    """Return what went wrong, as one line."""
    if isinstance(error, TimeoutError):
        return f"no whole answer came within {SECONDS_A_REQUEST} s, or no byte within {SECONDS_WITHOUT_A_BYTE} s"
    status = getattr(error, "status", None)
    if status == 0:
        return "the server redirects without end"
    text = getattr(error, "message", "") if status else str(error)
    first = (text.partition(": <")[0].strip().splitlines() or [type(error).__name__])[0].rstrip(":")
    return f"the server answered {status} {first}" if status else first


def from_array(
    array: zarr.Array[Any] | zarr.Group, *, kind: str = "log-probs", path: str | None = None
) -> MatrixSource:
    """Return the rows of a Zarr array.

    Raises:
        SourceError: for a group of arrays, or when rows of a chunk that was never written are read.
    """
    if isinstance(array, zarr.Group):
        raise SourceError(
            f"a Zarr group is no array: give one of its arrays, {', '.join(sorted(array.array_keys())) or 'none'}"
        )
    path = path or str(array.store_path)
    _check_chunks(array, path)
    return MatrixSource(_WrittenRows(array, path), kind=kind, path=path)


def _check_chunks(array: Any, path: str) -> None:
    """Refuse an array whose chunks do not fit in memory: a chunk is decoded as a whole."""
    size = math.prod(array.chunks) * array.dtype.itemsize
    if size > (free := free_memory()):
        raise SourceError(
            f"a chunk of {path}, of shape {tuple(array.chunks)}, takes {size / 2**30:,.1f} GiB, and "
            f"{free / 2**30:.1f} GiB are free: write the array again in smaller chunks"
        )


@final
class _WrittenRows:
    """Rows of an array, read on demand; rows of a chunk that was never written are refused.

    The array is read with NaN, or the largest integer, as its fill value. Rows with that value are read again with fill
    value 0: a number that was written does not change. This works for every store, format and shard.
    """

    def __init__(self, array: Any, path: str) -> None:
        self.shape, self._array, self._path = array.shape, array, path

    def __getitem__(self, rows: slice) -> Any:
        kind = self._array.dtype.kind
        own_mark = kind == "f" and self._array.fill_value is not None and np.isnan(self._array.fill_value)
        if kind not in "fiub" or own_mark:
            return self._read(rows, self._array.fill_value)
        mark = np.nan if kind == "f" else True if kind == "b" else np.iinfo(self._array.dtype).max
        values = self._read(rows, mark)
        marked = np.isnan(values) if kind == "f" else values == mark
        if marked.any():
            missing = np.argwhere(marked & (self._read(rows, 0) == 0))
            if len(missing):
                row, column = missing[0]
                raise SourceError(
                    f"{self._path} has no chunk for row {row + (rows.start or 0)}, column {column}: write the whole "
                    "array, and if its chunks of nothing but the fill value were left out, write them with "
                    "zarr.config.set({'array.write_empty_chunks': True})"
                )
        return values

    def _read(self, rows: slice, fill_value: Any) -> NDArray[Any]:
        """Return some rows, with ``fill_value`` in missing chunks."""
        metadata = replace(self._array.metadata, fill_value=fill_value)
        array: Any = zarr.Array(zarr.AsyncArray(metadata, self._array.store_path))
        with _as_source_errors(self._path):
            return np.asarray(array[rows])


def _store(name: str, group: zarr.Group, attributes: Mapping[str, Any], kind: str) -> MatrixSource:
    """Return a store's matrix with its recorded attributes."""
    check_kind(kind, attributes, name)
    _check_chunks(group[LOG_PROBS], name)
    if not is_as_written(group[LOG_PROBS], attributes):
        raise StoreError(f"the array {LOG_PROBS} of {name} does not hold what was written: dump into another store")
    kind = "matrix" if attributes["source"]["kind"] in ("matrix", "extended") else "log-probs"
    source = MatrixSource(
        _WrittenRows(group[LOG_PROBS], name), kind=kind, path=name, made_in=Precision.read(attributes["eps"])
    )
    source.bound, source.embedding_size = RankBound(**attributes["bound"]), attributes["embedding_size"]
    source.description = {**attributes["source"], **{"path": name, "kind": kind}}
    source.recorded_caution = attributes.get("caution", "")
    source.recorded_replaced = attributes.get("replaced", "")
    source.targets = known_targets(np.asarray(group[TARGETS]), attributes, name)
    return source


URL = Kind(what="a Zarr array behind a URL", matches=is_url, open=open_zarr)
FOLDER = Kind(what="a Zarr array", matches=is_plain_array, open=open_zarr)
OBJECT = Kind(what="a Zarr array", matches=lambda source: isinstance(source, zarr.Array | zarr.Group), open=from_array)
