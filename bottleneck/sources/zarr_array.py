"""Zarr arrays, on a disk or behind a URL."""

from __future__ import annotations

import errno
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from ..core.files import kind_of
from ..core.machine import free_memory
from ..errors import BottleneckError, SourceError, StoreError
from .opening import is_url
from .zarr_codecs import limited

SECONDS_A_REQUEST, SECONDS_WITHOUT_A_BYTE = 300.0, 30.0
"""Longest time that a web server may take to send a chunk, and to send nothing."""
LARGEST_BODY = 256 << 20
"""Bytes of the largest answer of a web server, and of the largest file of a folder that is read, unless the chunks of
an array are larger."""
LOCAL = "file://"


@final
class RegularFiles(LocalStore):
    """A folder of which only regular files of a limited size are read: a pipe or a device may hang or never end."""

    largest = LARGEST_BODY

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the bytes of a file, ``None`` without one; ``OSError`` for anything else."""
        path = self.root / key
        if (what := kind_of(path)) not in ("", "a folder"):
            raise OSError(errno.EINVAL, f"it is {what}, not a file", str(path))
        if not what and path.exists() and path.stat().st_size > self.largest:
            raise OSError(errno.EFBIG, f"it has more than {self.largest:,} bytes", str(path))
        return await super().get(key, prototype, byte_range)


def open_node(name: str, *, write: bool = False) -> Any:
    """Open the array or the group at a path or URL; chunks are read on demand.

    Raises:
        StoreError: for a path without a folder.
        SourceError: when nothing is there, its server does not give it, or its file system needs a package that is not
            installed.
    """
    path = Path(name.removeprefix(LOCAL))
    with as_source_errors(name):
        if is_url(name) and not name.startswith(LOCAL):
            return zarr.open(store=name, mode="r", storage_options=_limits(name))
        if not path.is_dir():
            what = f"it is {kind_of(path) or 'a file'}, not a folder; " if path.exists() else ""
            raise StoreError(f"the store {path} does not exist; {what}'bottleneck dump RUN --out {path}' makes one")
        return zarr.open(store=RegularFiles(path, read_only=not write), mode="r+" if write else "r")


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
def as_source_errors(name: str) -> Iterator[None]:
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


@final
class WrittenRows:
    """Rows of an array, read on demand; rows of a chunk that was never written are refused.

    The array is read with NaN, or the largest integer, as its fill value. Rows with that value are read again with fill
    value 0: a number that was written does not change. This works for every store, format and shard.

    Raises:
        SourceError: for an array without numbers, or whose chunks do not fit in memory: a chunk is unpacked as a whole.
    """

    def __init__(self, array: Any, path: str) -> None:
        self.shape, self._path = array.shape, path
        with as_source_errors(path):
            if array.dtype.kind not in "fiub":
                raise SourceError(f"the Zarr array {path} must hold real numbers, not {array.dtype}")
            chunk = tuple(array.shards or array.chunks)
            size = math.prod(chunk) * array.dtype.itemsize
            if size > (free := free_memory()):
                raise SourceError(
                    f"a chunk of {path}, of shape {chunk}, takes {size / 2**30:,.1f} GiB, and {free / 2**30:.1f} GiB "
                    "are free: write the array again in smaller chunks"
                )
            store = array.store_path.store
            if isinstance(store, RegularFiles):
                store.largest = max(store.largest, 2 * size)
            self.array: Any = zarr.Array(zarr.AsyncArray(limited(array.metadata), array.store_path))
        self.dtype = array.dtype

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Return some rows."""
        kind = self.dtype.kind
        mark = np.nan if kind == "f" else True if kind == "b" else np.iinfo(self.dtype).max
        values = self.read(rows, mark)
        marked = np.isnan(values) if kind == "f" else values == mark
        if marked.any():
            missing = np.argwhere(marked & (self.read(rows, 0) == 0))
            if len(missing):
                row, column = missing[0]
                raise SourceError(
                    f"{self._path} has no chunk for row {row + (rows.start or 0)}, column {column}: write the whole "
                    "array, and if its chunks of nothing but the fill value were left out, write them with "
                    "zarr.config.set({'array.write_empty_chunks': True})"
                )
        return values

    def read(self, rows: slice, fill_value: Any) -> NDArray[Any]:
        """Return some rows, with ``fill_value`` in missing chunks."""
        metadata = replace(self.array.metadata, fill_value=fill_value)
        array: Any = zarr.Array(zarr.AsyncArray(metadata, self.array.store_path))
        with as_source_errors(self._path):
            return np.asarray(array[rows])
