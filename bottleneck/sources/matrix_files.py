"""Rows of a matrix in a ``.npy`` or ``.safetensors`` file, read on demand.

The files are read, not mapped into memory: a mapped file that becomes shorter ends the process (SIGBUS). A file that
changes while it is measured is refused, because the passes over it would see different matrices.
"""

from __future__ import annotations

import json
import math
import os
import struct
import warnings
from pathlib import Path
from typing import IO, Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from ..core.files import open_file
from ..errors import MatrixError, SourceError
from ..spectrum.blocks import check_untyped
from ..spectrum.files import DAMAGE

_HEADER_BYTES = 10_000
"""Longest header of a .npy file, as NumPy has it."""
_VERSIONS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Readers of the versions of the format; version 3 is version 2 with names in UTF-8."""
_SAFETENSORS_TYPES = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"{kind}{bits}": f"<{code}{bits // 8}" for kind, code in (("I", "i"), ("U", "u")) for bits in (8, 16, 32, 64)},
    "BOOL": "|b1",
}
_TORCH_TYPES = {
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
"""Types that NumPy lacks."""


@final
class FileRows:
    """Rows of a matrix whose entries lie in a file one after the other.

    Args:
        path: the file.
        shape: (T, M).
        dtype: type of an entry.
        offset: bytes before the first entry.
        columns_first: whether a column's entries are consecutive (Fortran order), and not a row's.
        torch_dtype: type in torch, if NumPy lacks it; ``dtype`` is then an integer of its size.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        offset: int,
        *,
        columns_first: bool = False,
        torch_dtype: torch.dtype | None = None,
    ) -> None:
        self.shape, self._path, self._dtype, self._offset = shape, path, dtype, offset
        self._columns_first, self._torch_dtype = columns_first, torch_dtype
        self._file = open_file(path)
        self._state = self._now()

    def __getitem__(self, rows: slice) -> Any:
        """Return some rows; `SourceError` when the file has changed since it was opened."""
        start, stop, _ = rows.indices(self.shape[0])
        if self._columns_first:
            values = np.empty((stop - start, self.shape[1]), self._dtype, order="F")
            for column in range(self.shape[1]):
                self._read_into(values[:, column], column * self.shape[0] + start)
        else:
            values = np.empty((stop - start, *self.shape[1:]), self._dtype)
            self._read_into(values, start * math.prod(self.shape[1:]))
        if self._now() != self._state:
            raise SourceError(f"{self._path} changed while it was read: wait until it is written, and measure it again")
        return values if self._torch_dtype is None else torch.from_numpy(values).view(self._torch_dtype)

    def _read_into(self, values: NDArray[Any], entry: int) -> None:
        place, waiting = self._offset + entry * self._dtype.itemsize, values.view(np.uint8).reshape(-1).data
        while len(waiting):
            try:
                count = os.preadv(self._file.fileno(), [waiting], place)
            except OSError as error:
                raise SourceError(f"{self._path} cannot be read: {error.strerror}; copy it again") from error
            if not count:
                raise SourceError(f"{self._path} became shorter while it was read: copy it again")
            waiting, place = waiting[count:], place + count

    def _now(self) -> tuple[int, int]:
        state = os.fstat(self._file.fileno())
        return state.st_size, state.st_mtime_ns

    def __del__(self) -> None:
        if file := getattr(self, "_file", None):
            file.close()


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape of an array in NumPy's format, whether its columns come first, and its type.

    Raises:
        DAMAGE: the header is damaged.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a header that Python 2 wrote
        version = np.lib.format.read_magic(file)
        read = _VERSIONS[min(version, (2, 0))]
        shape, columns_first, dtype = read(file, max_header_size=_HEADER_BYTES)
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, columns_first, dtype


def npy_rows(path: Path) -> FileRows:
    """Return the rows of the array in a ``.npy`` file.

    Raises:
        SourceError: the file is damaged, holds objects, or does not hold as many entries as its header says.
    """
    try:
        with open_file(path) as file:
            shape, columns_first, dtype = npy_header(file)
            offset, size = file.tell(), os.fstat(file.fileno()).st_size
        check_untyped(dtype, str(path))
        if dtype.kind not in "fiub":
            raise ValueError(f"it must hold real numbers, not {'Python objects' if dtype.hasobject else dtype}")
        if size - offset != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"it has {size - offset:,} bytes of entries, and its header says {shape} of {dtype}")
    except DAMAGE as error:
        raise SourceError(f"{path} cannot be read as a NumPy array: {error}; write or copy it again") from error
    return FileRows(path, shape, dtype, offset, columns_first=columns_first and len(shape) == 2)


def safetensors_rows(path: Path, tensor: str | None) -> FileRows:
    """Return the rows of a tensor in a ``.safetensors`` file, of the only one when none is named.

    Raises:
        SourceError: the file is damaged, or holds several tensors and none is named.
        MatrixError: the tensor's type is not one of numbers that are whole bytes.
    """
    try:
        with open_file(path), safe_open(path, framework="pt") as file:  # checks the header against the size
            names = sorted(file.keys())
        with open_file(path) as data:
            (length,) = struct.unpack("<Q", data.read(8))
            header = json.loads(data.read(length))
    except (SafetensorError, *DAMAGE) as error:
        raise SourceError(f"{path} cannot be read as safetensors: {error}; write or copy it again") from error
    if tensor is None and len(names) == 1:
        tensor = names[0]
    if tensor is None or tensor not in names:
        asked = "name one of them" if tensor is None else f"there is no {tensor!r}; name one of them"
        raise SourceError(f"{path} holds {len(names)} tensors, {asked} as {path}:TENSOR: {', '.join(names[:8])}")
    about = header[tensor]
    kind, shape = about["dtype"], tuple(about["shape"])
    if kind not in _SAFETENSORS_TYPES and kind not in _TORCH_TYPES:
        raise MatrixError(f"{path} holds {tensor} as {kind}, which is no type of real numbers here: save it as F32")
    bits = _TORCH_TYPES.get(kind)
    dtype = np.dtype(_SAFETENSORS_TYPES[kind] if bits is None else f"<i{bits.itemsize}")
    return FileRows(path, shape, dtype, 8 + length + about["data_offsets"][0], torch_dtype=bits)
