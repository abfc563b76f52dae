"""Files that hold arrays by name: NumPy's .npz, torch's .pt, MATLAB's .mat, HDF5, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import pickle
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, final

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.files import open_file
from ..errors import SourceError, first_line
from ..language_models.checkpoint import CONFIG
from ..spectrum.blocks import WHOLE, type_name
from ..spectrum.files import DAMAGE
from .matrix_files import npy_header
from .sizes import check_bytes, check_size, largest

UNREADABLE = (*DAMAGE, pickle.UnpicklingError, csv.Error, SystemError)
"""What the readers raise for a damaged file; h5py's locks raise the last one."""

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
            return arrays[name].read() if isinstance(arrays[name], Stored) else arrays[name]
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


@final
@dataclass(frozen=True)
class Stored:
    """An array in a file, which is read when it is chosen."""

    shape: tuple[int, ...]
    read: Callable[[], NDArray[Any]]

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self.shape)

    def transposed(self) -> Stored:
        """Return the array with its dimensions in the other order."""
        return Stored(self.shape[::-1], lambda: self.read().T)


def _npz(path: Path) -> dict[str, Stored]:
    arrays: dict[str, Stored] = {}
    with open_file(path) as file, zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name, _, suffix = member.filename.rpartition(".")
            if suffix == "npy":
                with archive.open(member) as opened:
                    shape, _, dtype = npy_header(opened)
                arrays[name] = Stored(shape, partial(_member, path, member, dtype.itemsize * math.prod(shape)))
    return arrays


def _member(path: Path, member: zipfile.ZipInfo, declared: int) -> NDArray[Any]:
    """Return an array of a ``.npz`` file."""
    check_bytes(declared, stored=member.compress_size, what=member.filename, whole=True)
    if declared > member.file_size:
        raise ValueError(f"{member.filename} holds {member.file_size:,} bytes, and its header says {declared:,}")
    with open_file(path) as file, zipfile.ZipFile(file) as archive, archive.open(member) as opened:
        return np.asarray(np.lib.format.read_array(opened, allow_pickle=False))


def _torch(path: Path) -> Mapping[str, Any]:
    """Return the tensors of a file; nothing else in it is unpickled."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise ValueError("it holds more than tensors; save the tensor alone by torch.save(tensor, path)") from error
    content = {"tensor": loaded} if isinstance(loaded, torch.Tensor) else loaded
    if not isinstance(content, Mapping):
        raise ValueError(f"it holds a {type(loaded).__name__}, not tensors")
    named = list(_nested(content, "", set()))
    tensors = dict(named)
    if len(tensors) < len(named):
        raise ValueError("two of its tensors have one name; save the tensor alone by torch.save(tensor, path)")
    for key, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta:
            raise ValueError(f"{key} is sparse or has a shape without entries; save it dense, by tensor.to_dense()")
    return tensors


def _nested(content: Any, name: str, seen: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in mappings and lists at any depth, named ``model.lm_head.weight``, each container once."""
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, Mapping | list | tuple) and id(content) not in seen:
        seen.add(id(content))
        for key, value in content.items() if isinstance(content, Mapping) else enumerate(content):
            yield from _nested(value, f"{name}.{key}" if name else str(key), seen)


def _csv(path: Path) -> Mapping[str, Any]:
    """Return the numbers of a text file, without a header and without an index as pandas and R write it.

    A header is a first line that is not all numbers, or that counts the columns from 0; over an index it begins empty.
    Lines before it that begin with # are comments. The second line tells the delimiter and the decimal mark.
    """
    with open_file(path) as data, io.TextIOWrapper(data, encoding="utf-8-sig") as file:
        lines = ((number, line) for number, line in enumerate(file) if line.strip() and not line.startswith("#"))
        first_lines = [*itertools.islice(lines, 2)]
        if not first_lines:
            raise ValueError("it holds no numbers")
        delimiter, decimal = _delimiter(first_lines[-1][1], "\t" if path.suffix.lower() == ".tsv" else ",")
        first, second = [*(_fields(line, delimiter) for _, line in first_lines), []][:2]
        if second and len(first) + 1 == len(second) and not any(map(_NUMBER.fullmatch, first)):
            first = ["", *first]  # R's write.table names the columns without the index
        if second and len(first) != len(second):
            raise ValueError(
                f"its first line has {len(first)} fields and its second {len(second)}: leave out a title, or put # "
                "first"
            )
        counted = ["", *map(str, range(len(first)))]
        is_counted, is_indexed = first == counted[1:], first[:1] == [""]
        numbers = [field.replace(decimal, ".") for field in first]
        has_header = is_counted or first == counted[:-1] or not all(map(_NUMBER.fullmatch, numbers))
        check_bytes(
            8 * len(first) * path.stat().st_size // len(first_lines[-1][1]), stored=path.stat().st_size, what=str(path)
        )
        if has_header and not second:
            raise ValueError("it holds no numbers")
        file.seek(0)
        body = itertools.islice(file, first_lines[0][0] + has_header, None)
        try:
            table = np.loadtxt(
                body if decimal == "." else (line.replace(decimal, ".") for line in body),
                delimiter=delimiter,
                quotechar='"',
                ndmin=2,
                usecols=range(1, len(first)) if is_indexed and has_header else None,
            )
        except ValueError as error:
            raise ValueError(str(error).partition("; use `usecols`")[0]) from error
    return {"table": _of_tokens(path, _as_written(table), first[is_indexed:] if has_header else [])}


def _delimiter(line: str, default: str) -> tuple[str | None, str]:
    """Return what separates the numbers of a line, ``None`` for spaces, and the mark before their decimals."""
    for delimiter in ("\t", ";", ",", None):
        if (delimiter or " ") not in line.strip():
            continue
        fields = _fields(line, delimiter)
        for decimal in (".", ",") if delimiter != "," else (".",):
            if len(fields) > 1 and all(_NUMBER.fullmatch(field.replace(decimal, ".")) for field in fields[1:]):
                return delimiter, decimal
    return default, "."


def _fields(line: str, delimiter: str | None) -> list[str]:
    """Return the fields of a line of text."""
    line = line.strip() if delimiter is None else line.rstrip("\r\n")
    return next(csv.reader([line], delimiter=delimiter or " ", skipinitialspace=True), [])


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

    about = pyarrow.parquet.read_metadata(path)
    check_size((about.num_rows, about.num_columns), 8, stored=path.stat().st_size, what=str(path), whole=True)
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
    """Return the arrays of a MATLAB file; version 7.3 is HDF5, which stores a matrix's columns one after another.

    SciPy reads older versions in a process of its own, because a damaged file can end the process that reads it.
    """
    with open_file(path) as file:
        header = file.read(128)
    if header[124:128] in (b"\x00\x02IM", b"\x02\x00MI"):
        return {name: array.transposed() for name, array in _hdf5(path).items()}
    most = largest(path.stat().st_size)
    with TemporaryDirectory(prefix="bottleneck-") as folder:
        written = Path(folder) / "arrays.npz"
        arguments = [str(path.absolute()), str(written), str(most), json.dumps(sys.path)]
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", READ_MAT, *arguments],
                capture_output=True,
                timeout=SECONDS + most / BYTES_A_SECOND,
                env={"OPENBLAS_NUM_THREADS": "1"},
            )
        except subprocess.TimeoutExpired as error:
            raise ValueError("SciPy does not finish reading it; write it again") from error
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() if done.returncode > 0 else []
            raise ValueError(lines[-1] if lines else "it is damaged: SciPy crashes on it; write it again")
        loaded = {name: array.read() for name, array in _npz(written).items()}
    names = json.loads(str(loaded.pop("names")))
    arrays = {name: loaded[f"arr_{number}"] for number, name in enumerate(names)}
    return {name: Stored(array.shape, partial(_full, name, array)) for name, array in arrays.items()}


def _full(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if not array.ndim:
        raise ValueError(f"{name} is not a full matrix, but {array}: save it by full({name})")
    return array


READ_MAT = """
import json, resource, sys
path, arrays, most, folders = sys.argv[1:]
sys.path[:] = json.loads(folders)
import numpy as np
from scipy.io import loadmat
for limit, size in ((resource.RLIMIT_AS, 2 * int(most) + 2**32), (resource.RLIMIT_FSIZE, int(most) + 2**20)):
    hard = resource.getrlimit(limit)[1]
    size = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(limit, (size, size))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    loaded = {key: value for key, value in loadmat(path).items() if not key.startswith("__")}
    plain = {key: value for key, value in loaded.items() if isinstance(value, np.ndarray) and not value.dtype.hasobject}
    others = {key: np.array(type(value).__name__) for key, value in loaded.items()}
    np.savez(arrays, *{**others, **plain}.values(), names=json.dumps([*{**others, **plain}]))
except MemoryError:
    sys.exit(f"it takes more than {int(most):,} bytes")
except BaseException as error:
    sys.exit(f"it is damaged ({type(error).__name__}: {' '.join(str(error).split())}); write it again")
"""
"""Program that writes the arrays of a MATLAB file to a ``.npz``: of a file, to a file, bytes at most, `sys.path`."""
SECONDS, BYTES_A_SECOND = 60.0, 1e7
"""Time that SciPy may take, and the slowest that it reads."""


def _hdf5(path: Path) -> dict[str, Stored]:
    """Return the datasets of a file by name; links are named and not followed."""
    import h5py

    file = h5py.File(path, "r")  # closed with the last of its datasets
    arrays: dict[str, Stored] = {}

    def visit(name: str, link: Any) -> None:
        if not isinstance(link, h5py.HardLink):
            arrays[name] = Stored((), lambda: _not_in_the_file(name, "a link"))
        elif isinstance(item := file[name], h5py.Dataset):
            arrays[name] = Stored(item.shape or (), lambda: _dataset(item))

    file.visititems_links(visit)
    return arrays


def _dataset(dataset: Any) -> NDArray[Any]:
    """Return a dataset whose entries are all in its own file."""
    if dataset.is_virtual or dataset.external:
        _not_in_the_file(dataset.name, "a view of other files")
    stored = dataset.id.get_storage_size()
    if dataset.size:
        chunks = dataset.chunks and math.prod(
            math.ceil(n / size) for n, size in zip(dataset.shape, dataset.chunks, strict=True)
        )
        if not stored or (chunks and dataset.id.get_num_chunks() < chunks):
            raise ValueError(f"some entries of {dataset.name} were never written: write the whole dataset")
        check_size(dataset.shape, dataset.dtype.itemsize, stored=stored, what=dataset.name, whole=True)
    return np.asarray(dataset[()])


def _not_in_the_file(name: str, what: str) -> NoReturn:
    raise ValueError(f"{name} is {what}, and only numbers in the file itself are read: copy them into it")


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
