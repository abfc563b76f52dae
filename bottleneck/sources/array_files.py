"""Files that hold arrays: NumPy's, safetensors, torch's, text and Parquet; `mat_files` reads the others."""

from __future__ import annotations

import csv
import io
import itertools
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from ..core.files import check_size, exists, open_file
from ..errors import Parameter, SourceError
from ..spectrum.blocks import native_dtype
from .file_rows import UNREADABLE, FileRows, unreadable
from .mat_files import read_hdf5, read_mat

NOT_READ = (".pkl", ".pickle", ".joblib", ".feather", ".xlsx", ".gz", ".arrow")
"""Suffixes of other files that hold matrices."""

STATES = "hidden_states"
"""Name of the array of hidden states in a file, which is vLLM's."""
FEWEST_ROWS, FEW_ROWS = 10, 3
"""Rows of a table one of whose columns can look like an index, also beside other whole numbers or only without them."""
SAMPLE = 1_000_000
"""Numbers of a text file whose decimals are looked at."""
FEW = 5
"""Decimals with which a format cuts numbers off; float32 near one needs more."""

_NUMBER = re.compile(r"\s*([-+]?([0-9.]+(e[-+]?[0-9]+)?|inf(inity)?|nan)|n/?a|null|)\s*", re.IGNORECASE)
"""A number, or what stands for a missing one."""
_NOT_A_NUMBER = re.compile(r"could not convert string (.*) to float64 at row (\d+), column (\d+)")
"""NumPy's message, which counts rows from 0 and columns from 1."""


def read_arrays(path: Path) -> Mapping[str, Any]:
    """Return the arrays of a file by name, whose rows are read on demand where the format allows it.

    Args:
        path: a file with a suffix of `READERS`.

    Raises:
        SourceError: for a file that is missing or damaged, is not a regular file, or needs a package that is not
            installed.
    """
    suffix = path.suffix.lower()
    try:
        open_file(path).close()
    except FileNotFoundError as error:
        raise SourceError(f"the file {path} does not exist; check its name") from error
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if suffix == ".gz":
        raise SourceError(f"{path} is compressed: decompress it, by gunzip, and give the file that was in it")
    if suffix in NOT_READ:
        raise SourceError(f"{path}: {suffix} files are not read; load its array in Python, and save that by numpy.save")
    if suffix not in READERS:
        raise SourceError(f"{path} must be a file of arrays: {', '.join(READERS)}")
    try:
        return READERS[suffix](path)
    except ModuleNotFoundError as error:
        needed = (error.name or "a package").partition(".")[0]
        raise SourceError(f"reading {path} needs {needed}: pip install {needed}") from error
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def read_array(place: str) -> Any:
    """Return the array FILE, (T, M), or FILE:NAME; without a name the only array, or the only one of two dimensions.

    Raises:
        SourceError: as `read_arrays`, and for a name that is missing or needed.
    """
    file, _, given = place.rpartition(":")
    path, name = (Path(place), None) if not file or exists(Path(place)) else (Path(file), given)
    arrays = read_arrays(path)
    if name is None and STATES in arrays:
        raise SourceError(
            f"{path} holds {STATES}: give the output layer that they belong to, ", Parameter("head", "FILE:NAME"),
            f", or name the matrix itself as {path}:{STATES}",
        )  # fmt: skip
    if name is None:
        matrices = [key for key in arrays if len(arrays) == 1 or getattr(arrays[key], "ndim", 0) == 2]
        name = matrices[0] if len(matrices) == 1 else None
    if name is not None and name in arrays:
        if isinstance(arrays[name], SourceError):
            raise arrays[name]
        return arrays[name]
    if not arrays:
        raise SourceError(f"{path} does not hold an array: save a matrix of contexts × tokens")
    known = ", ".join([*list(map(str, arrays))[:8], *(["…"] if len(arrays) > 8 else [])])
    advice = "name a matrix" if name is None else f"there is no {name!r}; name one of them"
    raise SourceError(f"{path} holds {len(arrays)} arrays; {advice} as {path}:NAME: {known}")


def _npy(path: Path) -> dict[str, FileRows]:
    def rows(part: slice | None = None) -> Any:
        with open_file(path), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header that Python 2 wrote
            mapped = np.load(path, mmap_mode="r")
        if part is None:
            return mapped
        if not mapped.flags.c_contiguous:
            return np.array(mapped[part])
        # Rows are read, not mapped: a mapped file that becomes shorter ends the process (SIGBUS).
        count, start = (part.stop - part.start) * mapped[:1].size, part.start * mapped.strides[0]
        return np.fromfile(path, mapped.dtype, count, offset=mapped.offset + start).reshape(-1, *mapped.shape[1:])

    whole = rows()
    if whole.nbytes + whole.offset != path.stat().st_size:
        raise ValueError(f"it is longer than its header says, which has shape {whole.shape} of {whole.dtype}")
    return {"array": FileRows(path, whole.shape, rows)}


def _npz(path: Path) -> dict[str, Any]:
    with open_file(path) as file, np.load(file, allow_pickle=False) as loaded:
        for member in loaded.zip.infolist():
            check_size((member.file_size,), 1, stored=member.compress_size, what=member.filename, whole=True)
        arrays: dict[str, Any] = {}
        for name in loaded.files:
            try:
                arrays[name] = loaded[name]
            except ValueError as error:  # objects, beside arrays that can be read
                arrays[name] = unreadable(path, error)
    return {name: array for name, array in arrays.items() if not isinstance(array, bytes)}


def _safetensors(path: Path) -> dict[str, FileRows]:
    def read(name: str, rows: slice) -> Any:
        with safe_open(path, framework="pt") as file:
            return file.get_slice(name)[rows.start : rows.stop]

    with open_file(path), safe_open(path, framework="pt") as file:
        return {
            name: FileRows(path, tuple(file.get_slice(name).get_shape()), partial(read, name))
            for name in sorted(file.keys())
        }


def _torch(path: Path) -> Mapping[str, Any]:
    """Return the tensors of a file; nothing else in it is unpickled."""
    loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    named = list(_nested({"tensor": loaded} if isinstance(loaded, torch.Tensor) else loaded, "", set()))
    tensors = dict(named)
    if not isinstance(loaded, Mapping | torch.Tensor):
        raise ValueError(f"it holds a {type(loaded).__name__}, not tensors")
    if len(tensors) < len(named):
        raise ValueError("two of its tensors have one name; save the tensor alone by torch.save(tensor, path)")
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
    Lines before it that begin with # are comments, and so are later ones of another number of fields. The second line
    tells the delimiter and the decimal mark.
    """
    import pandas as pd

    with open_file(path) as data, io.TextIOWrapper(data, encoding="utf-8-sig") as file:
        lines = ((places, line) for places, line in _lines(file) if line.strip())
        first_lines = [*itertools.islice(itertools.dropwhile(lambda each: each[1].startswith("#"), lines), 2)]
        if not first_lines:
            raise ValueError("it does not hold numbers")
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
        are_ids = is_indexed and all(map(str.isdigit, first[1:])) and len({*first}) == len(first)
        has_header = is_counted or are_ids or not all(map(_NUMBER.fullmatch, numbers))
        size = path.stat().st_size
        check_size((len(first), size // len(first_lines[-1][1])), 8, stored=size, what=str(path), whole=True)
        if has_header and not second:
            raise ValueError("it does not hold numbers")
        file.seek(0)
        rest = itertools.islice(file, first_lines[0][0][has_header], None)
        body = (line for line in rest if line[0] != "#" or len(_fields(line, delimiter)) == len(first))
        try:
            table = np.loadtxt(
                body if decimal == "." else (line.replace(decimal, ".") for line in body),
                delimiter=delimiter,
                quotechar='"',
                comments=None,
                ndmin=2,
                usecols=range(1, len(first)) if is_indexed and has_header else None,
            )
        except ValueError as error:
            if wrong := _NOT_A_NUMBER.match(str(error)):
                text, row, column = wrong.groups()
                raise SourceError(
                    f"{path}: field {column} of row {int(row) + 1} of its numbers is {text}, which is not a number: "
                    "write a number there, or leave the row or the column out"
                ) from error
            raise ValueError(str(error).partition("; use `usecols`")[0]) from error
    return {"table": pd.DataFrame(_as_written(table), columns=first[is_indexed:] if has_header else None, copy=False)}


def _lines(file: Iterable[str]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield each line, whose quoted fields may hold ends of lines, with the numbers of its first line and the next."""
    start, whole = 0, ""
    for stop, line in enumerate(file, 1):
        whole += line
        if whole.count('"') % 2 == 0:
            yield (start, stop), whole
            start, whole = stop, ""


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


def numbers_of(frame: Any, name: str) -> Any:
    """Return the numbers of a data frame, columns named 0, 1, 2, … in that order; other arrays as they are.

    A column or a first row that looks like ids or targets is refused: it would be measured as a token or a context. So
    is a column with another name beside those of ids.
    """
    if not hasattr(frame, "columns"):
        return frame
    native_dtype(frame)  # refuses tables that NumPy does not read
    table, columns = np.asarray(frame), list(frame.columns)
    for label in columns if table.dtype.kind == "O" else ():
        if (kind := np.asarray(frame[label]).dtype).kind not in "fiub":
            raise SourceError(f"{name}: the column {label} holds {kind}, not numbers: convert it, or leave it out")
    _check_tokens(table, columns, name)
    ids = [int(label) for label in map(str, columns) if label.isdecimal()]
    others = [label for label in columns if not str(label).isdecimal()]
    if len(ids) > 1 and 0 < len(others) < len(ids):
        raise SourceError(
            f"{name}: the column {others[0]} stands beside columns that are named by token ids, and would be measured "
            "as a token: leave it out"
        )
    is_order = not others and ids != sorted(ids) == [*range(len(ids))]
    return table[:, np.argsort(ids)] if is_order else table


def _check_tokens(table: NDArray[Any], columns: Sequence[Any], name: str) -> None:
    """Refuse a column or a first row of whole numbers beside others."""
    top = table[:FEWEST_ROWS]
    if table.dtype.kind not in "fiu" or (whole := top == np.rint(top)).all():
        return
    if len(top) < FEWEST_ROWS and not whole.sum() == whole.all(0).sum() * len(top) >= FEW_ROWS:
        return
    for number in np.flatnonzero(whole.all(0)).tolist():
        column = table[:, number]
        if (column != column[0]).any() and (column == np.rint(column)).all():
            label = f", {columns[number]}," if isinstance(columns[number], str) else ""
            raise SourceError(
                f"{name}: column {number}{label} holds whole numbers and others do not, as an index or a target does, "
                "and would be measured as a token: leave it out, or give the array alone, as np.save writes it, to "
                "keep it"
            )
    if whole[0].all() and not whole[1:].all(1).any() and len(np.unique(table[0])) == table.shape[1] > 1:
        raise SourceError(
            f"{name}: the first line holds another whole number in every column, as a header of token ids does, and "
            "would be measured as a context: leave it out, or give the array alone, as np.save writes it, to keep it"
        )


def _as_written(numbers: NDArray[np.float64]) -> NDArray[np.floating[Any]]:
    """Return numbers as float32 if they were, in the shortest decimals that give a float32 back, or in nine digits.

    NumPy and pandas write the former. Numbers of few decimals may have been cut off by a format, and stay as they are.
    """
    some = numbers.ravel()[:: max(1, numbers.size // SAMPLE)]
    with np.errstate(over="ignore"):
        narrow = some.astype(np.float32)
    written = (each.astype(np.float64) for each in (narrow.astype("U"), np.char.mod("%.9g", narrow)))
    if any(np.array_equal(some, each, equal_nan=True) for each in written) and not np.array_equal(
        some, some.round(FEW), equal_nan=True
    ):
        return numbers.astype(np.float32)
    return numbers


def _parquet(path: Path) -> Mapping[str, Any]:
    import pandas as pd
    import pyarrow.parquet

    about = pyarrow.parquet.read_metadata(path)
    check_size((about.num_rows, about.num_columns), 8, stored=path.stat().st_size, what=str(path), whole=True)
    table: Any = pd.read_parquet(path)
    nullable = {name: str(kind).lower() for name, kind in table.dtypes.items() if str(kind).startswith("Float")}
    table = table.astype(nullable)
    lists = [name for name in table if len(table) and np.ndim(table[name].iat[0])]
    if len(lists) == 1 and STATES not in table:
        with suppress(ValueError):  # lists of several lengths
            return {name: np.stack(table[name]) if name in lists else np.asarray(table[name]) for name in table}
    return {"table": table}


READERS: dict[str, Callable[[Path], Mapping[str, Any]]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".pt": _torch,
    ".pth": _torch,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".mat": read_mat,
    ".h5": read_hdf5,
    ".hdf5": read_hdf5,
}
"""Suffix → function that returns the arrays of a file by name; a `SourceError` stands for one that cannot be read."""
