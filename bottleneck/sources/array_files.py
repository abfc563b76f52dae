"""Files that hold arrays by name: NumPy's .npz, torch's .pt, MATLAB's .mat, HDF5, CSV and Parquet."""

from __future__ import annotations

import csv
import itertools
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..checkpoint import CONFIG
from ..errors import SourceError, first_line
from ..spectrum.blocks import WHOLE, type_name

UNREADABLE = (
    OSError, TypeError, ValueError, LookupError, EOFError, OverflowError, NotImplementedError, RuntimeError,
    zipfile.BadZipFile, pickle.UnpicklingError,
)  # fmt: skip
"""What the readers raise for a damaged file."""

CONVERT = {
    ".pkl": "np.save('matrix.npy', np.asarray(pickle.load(open('{path}', 'rb'))))",
    ".pickle": "np.save('matrix.npy', np.asarray(pickle.load(open('{path}', 'rb'))))",
    ".joblib": "np.save('matrix.npy', np.asarray(joblib.load('{path}')))",
    ".feather": "np.save('matrix.npy', pd.read_feather('{path}').to_numpy())",
    ".xlsx": "np.save('matrix.npy', pd.read_excel('{path}', header=None).to_numpy())",
    ".json": "np.save('matrix.npy', np.asarray(json.load(open('{path}'))))",
    ".gz": "np.save('matrix.npy', np.loadtxt('{path}', delimiter=','))",
    ".arrow": "np.save('matrix.npy', pa.ipc.open_file('{path}').read_pandas().to_numpy())",
}
"""Suffixes of other files that hold matrices → the line of Python that converts one."""

FEWEST_ROWS = 10
"""Rows of a table whose first column can look like an index."""
LONGEST = 120
"""Characters of a reader's message that are shown: some quote the whole line."""
SAMPLE = 1_000_000
"""Numbers of a text file whose decimals are looked at."""
FEW = 5
"""Decimals with which a format cuts numbers off; float32 near one needs more."""

_NUMBER = re.compile(r"\s*([-+]?([0-9.]+(e[-+]?[0-9]+)?|inf(inity)?|nan)|n/?a|null|)\s*", re.IGNORECASE)
"""A number, or what stands for a missing one."""


def read_array(path: Path, name: str | None) -> Any:
    """Return one array of a file, (T, M).

    Args:
        path: a file with a suffix of `READERS`.
        name: name of the array; by default the only one that has two dimensions.

    Raises:
        SourceError: for a file that is damaged or needs a package that is not installed, or for a name that is missing
            or needed.
    """
    try:
        arrays = READERS[path.suffix.lower()](path)
        if name is None:
            matrices = [key for key in arrays if getattr(arrays[key], "ndim", 0) == 2]
            name = matrices[0] if len(matrices) == 1 else None
        if name is not None and name in arrays:
            return arrays[name]
    except ModuleNotFoundError as error:
        needed = (error.name or "a package").partition(".")[0]
        raise SourceError(f"reading {path} needs {needed}: pip install {needed}") from error
    except UNREADABLE as error:
        raise SourceError(f"{path} cannot be read as a {path.suffix} file: {first_line(error)[:LONGEST]}") from error
    if not arrays:
        raise SourceError(f"{path} holds no array: save a matrix of contexts × tokens")
    known = ", ".join([*list(map(str, arrays))[:8], *(["…"] if len(arrays) > 8 else [])])
    asked = "name a matrix" if name is None else f"there is no {name!r}; name one of them"
    raise SourceError(f"{path} holds {len(arrays)} arrays; {asked} as {path}:NAME: {known}")


def check_suffix(path: Path) -> None:
    """Refuse a kind of file that holds matrices but is not read, with the line of Python that converts it."""
    if path.name == CONFIG:
        raise SourceError(f"{path} is the configuration of a model: give its folder, {path.parent}")
    if path.suffix.lower() in CONVERT:
        line = CONVERT[path.suffix.lower()].format(path=path)
        raise SourceError(f"{path}: {path.suffix} files are not read; convert it in Python by: {line}")


def _npz(path: Path) -> Mapping[str, Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def _torch(path: Path) -> Mapping[str, Any]:
    """Return the tensors of a file; nothing else in it is unpickled."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise ValueError("it holds more than tensors; save the tensor alone by torch.save(tensor, path)") from error
    content = {"tensor": loaded} if isinstance(loaded, torch.Tensor) else loaded
    if not isinstance(content, Mapping):
        raise ValueError(f"it holds a {type(loaded).__name__}, not tensors")
    tensors = {str(key): value for key, value in content.items() if isinstance(value, torch.Tensor)}
    for key, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta:
            raise ValueError(f"{key} is sparse or has a shape without entries; save it dense, by tensor.to_dense()")
    return tensors


def _csv(path: Path) -> Mapping[str, Any]:
    """Return the numbers of a text file with commas or tabs, without a header and without pandas' index.

    A header is a first line that is not all numbers, or that counts the columns from 0; over an index it begins empty.
    Lines before it that begin with # are comments.
    """
    import pandas as pd

    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = ((number, line) for number, line in enumerate(file) if line.strip() and not line.startswith("#"))
        first_lines = [*itertools.islice(lines, 2)]
    first, second = [*csv.reader([line for _, line in first_lines], delimiter=separator), [], []][:2]
    comments = first_lines[0][0] if first_lines else 0
    if second and len(first) != len(second):
        raise ValueError(
            f"its first line has {len(first)} fields and its second {len(second)}: leave out a title, or put # first"
        )
    counted = ["", *map(str, range(len(first)))]
    is_counted, is_indexed = first == counted[1:], first[:1] == [""]
    header = 0 if is_counted or first == counted[:-1] or not all(map(_NUMBER.fullmatch, first)) else None
    index = 0 if is_indexed and header == 0 else None
    how: dict[str, Any] = {"header": header, "index_col": index, "skiprows": comments, "encoding": "utf-8-sig"}
    table = pd.read_csv(path, sep=separator, dtype=np.float64, **how)
    return {"table": _of_tokens(path, _as_written(table.to_numpy()), first[is_indexed:] if header == 0 else [])}


def _of_tokens(path: Path, table: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """Return a table, unless a column or the first row looks like ids: they would be measured as a token or context."""
    top = table[:FEWEST_ROWS]
    whole = top == np.rint(top)
    if len(table) < FEWEST_ROWS or whole.all():
        return table
    for number in np.flatnonzero(whole.all(0)).tolist():
        column = table[:, number]
        if (column == column[0]).all() or (column != np.rint(column)).any():
            continue
        name = f", {names[number]}," if names else ""
        raise SourceError(
            f"{path}: column {number}{name} holds whole numbers and others do not, as an index or a target does, and "
            "would be measured as a token: leave it out, or save the matrix by np.save to keep it"
        )
    if whole[0].all() and not whole[1:].all(1).any() and len(np.unique(table[0])) == table.shape[1] > 1:
        raise SourceError(
            f"{path}: the first line holds another whole number in every column, as a header of token ids does, and "
            "would be measured as a context: leave it out, or save the matrix by np.save to keep it"
        )
    return table


def check_columns(table: Any, name: str) -> None:
    """Refuse a data frame of real numbers with a column of whole numbers: an index or a target, no token."""
    if not (hasattr(table, "columns") and hasattr(table, "dtypes")):
        return
    whole = [key for key, dtype in zip(table.columns, table.dtypes, strict=True) if type_name(dtype) == WHOLE]
    for key in whole if len(whole) < len(table.columns) else ():
        if len(np.unique(np.asarray(table[key]))) > 1:
            raise SourceError(
                f"{name}: column {key!r} holds whole numbers and others do not, as an index or a target does, and "
                "would be measured as a token: leave it out, or give the frame's array, frame.to_numpy(), to keep it"
            )


def _as_written(numbers: NDArray[np.float64]) -> NDArray[np.floating[Any]]:
    """Return numbers as float32 if they were: NumPy and pandas write the shortest decimal that gives a float32 back.

    Numbers of few decimals may have been cut off by a format, and stay as they are.
    """
    some = numbers.ravel()[:: max(1, numbers.size // SAMPLE)]
    with np.errstate(over="ignore"):
        narrow = some.astype(np.float32)
    back = narrow.astype("U").astype(np.float64)
    if np.array_equal(some, back, equal_nan=True) and not np.array_equal(some, some.round(FEW), equal_nan=True):
        return numbers.astype(np.float32)
    return numbers


def _parquet(path: Path) -> Mapping[str, Any]:
    import pandas as pd
    import pyarrow.parquet

    columns = pyarrow.parquet.read_table(path)
    index = [name for name in (columns.schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
    columns = columns.drop_columns(index)
    arrays = [np.asarray(column) for column in columns.columns]
    table = np.column_stack(arrays)
    if table.dtype.kind not in "fiu":
        raise ValueError("its columns are not all numbers")
    table = _of_tokens(path, table, columns.column_names)
    several = len({array.dtype for array in arrays if array.dtype.kind == "f"}) > 1
    return {"table": pd.DataFrame(dict(enumerate(arrays))) if several else table}  # the least precise type counts


def _mat(path: Path) -> Mapping[str, Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        return {key: value for key, value in loadmat(path).items() if not key.startswith("__")}
    except MatReadError as error:
        raise ValueError(error) from error
    except NotImplementedError:  # version 7.3 is HDF5, which stores a matrix's columns one after another
        return {key: value.T for key, value in _hdf5(path).items()}


def _hdf5(path: Path) -> Mapping[str, Any]:
    import h5py

    with h5py.File(path, "r") as file:
        datasets: dict[str, Any] = {}
        file.visititems(
            lambda name, item: datasets.update({name: np.asarray(item[()])}) if isinstance(item, h5py.Dataset) else None
        )
        return datasets


READERS: dict[str, Callable[[Path], Mapping[str, Any]]] = {
    ".npz": _npz,
    ".pt": _torch,
    ".pth": _torch,
    ".csv": _csv,
    ".tsv": _csv,
    ".mat": _mat,
    ".parquet": _parquet,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
}
"""Suffix → function that returns the arrays of a file by name."""
