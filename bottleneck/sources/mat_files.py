"""The arrays of MATLAB's and HDF5's files, of which only numbers in the file itself are read."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..core.files import check_size, open_file
from ..errors import SourceError
from .file_rows import PACKED, PACKED_NUMBERS, UNREADABLE, FileRows, unreadable

NUMBERS = "double", "single", "logical", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
"""Classes of MATLAB's arrays of numbers."""
READ_MAT = """
import json, sys
path, arrays, folders = sys.argv[1:]
sys.path[:] = json.loads(folders)
import numpy as np
from scipy.io import loadmat
try:
    loaded = {key: value for key, value in loadmat(path).items() if not key.startswith("__")}
    loaded = {key: value.toarray() if hasattr(value, "toarray") else value for key, value in loaded.items()}
    plain = {key: value for key, value in loaded.items() if isinstance(value, np.ndarray) and not value.dtype.hasobject}
    others = [key for key in loaded if key not in plain]
    np.savez(arrays, *plain.values(), names=json.dumps([*plain]), others=json.dumps(others))
except BaseException as error:
    sys.exit(f"it is damaged ({type(error).__name__}: {' '.join(str(error).split())})")
"""
"""Program that writes the arrays of a MATLAB file to a ``.npz``: of a file, to a file, with this `sys.path`."""


def read_mat(path: Path) -> Mapping[str, Any]:
    """Return the arrays of a MATLAB file; version 7.3 is HDF5, which stores a matrix's columns one after another.

    SciPy reads older versions in a process of its own, because a damaged file can end the process that reads it.
    """
    with open_file(path) as file:
        header = file.read(128)
    if header[124:128] in (b"\x00\x02IM", b"\x02\x00MI"):
        return read_hdf5(path, transposed=True)
    with TemporaryDirectory(prefix="bottleneck-") as folder:
        written = Path(folder) / "arrays.npz"
        arguments = [str(path.absolute()), str(written), json.dumps(sys.path)]
        done = subprocess.run([sys.executable, "-I", "-c", READ_MAT, *arguments], capture_output=True)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() if done.returncode > 0 else []
            raise ValueError(lines[-1] if lines else "it is damaged: SciPy crashes on it")
        with np.load(written, allow_pickle=False) as loaded:
            arrays = {name: loaded[f"arr_{number}"] for number, name in enumerate(json.loads(str(loaded["names"])))}
            others = json.loads(str(loaded["others"]))
    errors = {
        name: SourceError(f"{name} of {path} is a struct, cell or object of MATLAB: save a matrix of numbers")
        for name in others
    }
    return {**arrays, **errors}


def read_hdf5(path: Path, *, transposed: bool = False) -> dict[str, Any]:
    """Return the datasets of a file by name; a dataset or link that is not stored in the file is a `SourceError`."""
    import h5py

    file = h5py.File(path, "r")  # closed with the last of its datasets
    arrays: dict[str, Any] = {}

    def visit(name: str, link: Any) -> None:
        try:
            if not isinstance(link, h5py.HardLink):
                raise ValueError(f"{name} is a link, and only numbers in the file itself are read: copy them into it")
            item = file[name]
            if "MATLAB_sparse" in item.attrs:
                arrays[name] = _sparse(path, item)
            elif isinstance(item, h5py.Dataset) and "MATLAB_sparse" not in item.parent.attrs:
                if (kind := item.attrs.get("MATLAB_class", b"double").decode()) not in NUMBERS:
                    raise ValueError(f"{name} is a {kind} of MATLAB: save a matrix of numbers")
                if "MATLAB_empty" in item.attrs:
                    raise ValueError(f"{name} is an empty matrix")
                arrays[name] = _dataset(path, item, transposed=transposed)
        except (*UNREADABLE, SourceError) as error:
            arrays[name] = error if isinstance(error, SourceError) else unreadable(path, error)

    file.visititems_links(visit)
    return arrays


def _sparse(path: Path, group: Any) -> Any:
    """Return the full matrix of a sparse one: MATLAB stores its columns one after another."""
    from scipy.sparse import csc_matrix

    shape = int(group.attrs["MATLAB_sparse"]), len(group["jc"]) - 1
    check_size(shape, 8, stored=group["jc"].id.get_storage_size(), what=group.name, whole=True)
    names = [name for name in ("data", "ir", "jc") if name in group]  # only jc where all entries are zero
    parts = [_dataset(path, group[name], transposed=False)[:] for name in names]
    matrix = csc_matrix(tuple(parts) if len(parts) == 3 else shape, shape)
    matrix.check_format(full_check=True)  # SciPy would write outside of the matrix
    return matrix.toarray()


def _dataset(path: Path, dataset: Any, *, transposed: bool) -> FileRows:
    """Return the rows of a dataset whose entries are all in its own file."""
    name = dataset.name
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"{name} is a view of other files, and only numbers in the file itself are read")
    if packed := PACKED & {*dataset.attrs}:
        raise SourceError(PACKED_NUMBERS.format(name, ", ".join(sorted(packed))))
    stored, shape = dataset.id.get_storage_size(), dataset.shape or ()
    if dataset.size:
        chunks = math.prod(map(math.ceil, np.divide(shape, dataset.chunks))) if dataset.chunks else 0
        if not stored or (dataset.chunks and dataset.id.get_num_chunks() < chunks):
            raise ValueError(f"some entries of {name} were never written: write the whole dataset")
        check_size(shape, dataset.dtype.itemsize, stored=stored, what=name)
        if dataset.chunks:
            check_size(dataset.chunks, dataset.dtype.itemsize, stored=stored, what=f"a chunk of {name}", whole=True)
    if transposed:
        return FileRows(path, shape[::-1], lambda rows: np.asarray(dataset[..., rows]).T)
    return FileRows(path, shape, lambda rows: np.asarray(dataset[rows]))
