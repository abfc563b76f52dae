"""Zarr arrays, on a disk or behind a URL."""

from __future__ import annotations

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

from ..core.files import kind_of
from ..core.machine import free_memory
from ..errors import BottleneckError, SourceError, StoreError
from .file_rows import PACKED, PACKED_NUMBERS
from .opening import is_url

LOCAL = "file://"


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
            return zarr.open(store=name, mode="r")
        if not path.is_dir():
            folder, _, inner = name.rpartition(":")
            if folder and Path(folder).is_dir():
                raise StoreError(f"{name} does not exist: name an array of a group by its path, {folder}/{inner}")
            what = f"it is {kind_of(path) or 'a file'}, not a folder; " if path.exists() else ""
            raise StoreError(f"the store {path} does not exist; {what}'bottleneck dump RUN --out {path}' makes one")
        return zarr.open(store=path, mode="r+" if write else "r")


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
            if packed := PACKED & {*array.attrs}:
                raise SourceError(PACKED_NUMBERS.format(path, ", ".join(sorted(packed))))
            if "pickle" in str({**array.metadata.to_dict(), "attributes": None}):  # reading one may run its code
                raise SourceError(f"the chunks of the Zarr array {path} are pickled: write them by another codec")
            chunk = tuple(array.shards or array.chunks)
            size = math.prod(chunk) * array.dtype.itemsize
            if size > (free := free_memory()):
                raise SourceError(
                    f"a chunk of {path}, of shape {chunk}, takes {size / 2**30:,.1f} GiB, and {free / 2**30:.1f} GiB "
                    "are free: write the array again in smaller chunks"
                )
        self.array = array
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
