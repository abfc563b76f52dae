"""Damaged matrices: ``.npy`` and ``.safetensors`` files, Zarr arrays of any codec, and stores."""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from scipy.io import savemat

from attacks import damage, promise
from attacks.damage import Damage, with_value
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.sources.matrix import open_matrix


def header(text: str) -> Damage:
    """Replace the header of a .npy file."""

    def apply(path: Path) -> None:
        data = path.read_bytes()
        (length,) = struct.unpack("<H", data[8:10])
        encoded = text.encode("latin1")
        path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", len(encoded)) + encoded + data[10 + length :])

    return apply


def of_shape(shape: str, dtype: str = "<f8") -> Damage:
    """Replace shape and type in the header of a .npy file."""
    return header(f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}\n")


def pipe_instead(path: Path) -> None:
    """Put a pipe that nothing writes to in place of a file."""
    path.unlink()
    os.mkfifo(path)


NPY: dict[str, Damage] = {
    "empty": damage.write(b""),
    "cut in the rows": damage.cut(0.7),
    "one row fewer": of_shape("(23, 12)"),
    "a shape of 10^30": of_shape(f"({10**30}, 12)"),
    "no rows": lambda path: np.save(path, np.empty((0, 12))),
    "a header of code": header("__import__('os').abort()"),
    "an unknown type": of_shape("(24, 12)", "<q9"),
    "objects": lambda path: np.save(path, np.full((24, 12), None), allow_pickle=True),
    "an unknown version": lambda path: path.write_bytes(b"\x93NUMPY\x09" + path.read_bytes()[7:]),
    "a number that is not finite": lambda path: np.save(path, np.full((24, 12), np.nan)),
    "a zip archive": lambda path: path.write_bytes((path.parent / "s.npz").read_bytes()),
    "a link to itself": damage.loop,
    "a pipe": pipe_instead,
    "removed": damage.remove,
}


def tensors(**entries: Any) -> Damage:
    """Write a .safetensors file with a header of one's own, and 2,304 zeros."""

    def apply(path: Path) -> None:
        text = json.dumps(entries).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(2304))

    return apply


def tensor(dtype: str = "F64", shape: Any = (24, 12), offsets: Any = (0, 2304)) -> Damage:
    """Write a .safetensors file with one tensor of zeros."""
    return tensors(a={"dtype": dtype, "shape": shape, "data_offsets": offsets})


SAFETENSORS: dict[str, Damage] = {
    "empty": damage.write(b""),
    "cut in the rows": damage.cut(0.7),
    "a header longer than the file": damage.write(struct.pack("<Q", 1 << 60) + b"{}"),
    "a header nested deeply": damage.write(struct.pack("<Q", 10_000) + b"[" * 10_000),
    "no tensor": tensors(),
    "a length of 10^30": tensor(shape=(10**30, 12)),
    "offsets beyond the end": tensor(offsets=(0, 5000)),
    "names that steer a terminal": tensors(
        **{f"\x1b[2J{n}": {"dtype": "F64", "shape": [6], "data_offsets": [48 * n, 48 * (n + 1)]} for n in range(48)}
    ),
    "rows of zeros": tensor(),
}


def chunk(change: Damage) -> Damage:
    """Change the first chunk of an array."""

    def apply(array: Path) -> None:
        place = array / "c" / "0" / "0"
        change(place if place.exists() else array / "0.0")

    return apply


def metadata(place: str, value: Any) -> Damage:
    """Change one value of an array's metadata."""
    return lambda array: with_value(place, value)(array / "zarr.json")


CHUNKS: dict[str, Damage] = {
    "cut": chunk(damage.cut(0.6)),
    "missing": chunk(damage.remove),
    "a folder": chunk(damage.folder_instead),
    "noise": chunk(damage.write(bytes(range(256)))),
    "a pipe": chunk(pipe_instead),
    "a device": chunk(lambda path: (path.unlink(), path.symlink_to("/dev/zero"))),
}
METADATA: dict[str, Damage] = {
    "a shape of 10^30": metadata("shape", [10**30, 12]),
    "more rows": metadata("shape", [48, 12]),
    "chunks of 10^12 rows": metadata("chunk_grid.configuration.chunk_shape", [10**12, 12]),
    "an unknown type": metadata("data_type", "float7"),
    "no codecs": metadata("codecs", []),
    "an unknown codec": metadata("codecs", [{"name": "\x1b[31m"}]),
}


def saved_by_torch(tensor: torch.Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    return buffer.getvalue()


def matlab(change: Callable[[bytes], bytes]) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, {"a": np.eye(4)})
    return change(buffer.getvalue())


def hdf5(content: Any) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["a"] = content
    return buffer.getvalue()


NAMED: dict[str, Callable[[], bytes]] = {
    "sparse.pt": lambda: saved_by_torch(torch.eye(4).to_sparse()),
    "shape-only.pt": lambda: saved_by_torch(torch.empty(4, 4, device="meta")),
    "code.pt": lambda: b"\x80\x02cos\nsystem\n(S'touch pwned'\ntR.",
    "cut.mat": lambda: matlab(lambda data: data[:200]),
    "other-type.mat": lambda: matlab(lambda data: data[:128] + b"\xff\xff\xff\x7f" + data[132:]),
    "text.h5:a": lambda: hdf5("text"),
    "cut.h5": lambda: hdf5(np.eye(4))[:700],
    "cut.parquet": lambda: b"PAR1" + bytes(40),
    "empty.csv": lambda: b"",
    "uneven.csv": lambda: b"1,2\n3\n",
    "too-large.csv": lambda: b"1e999,2\n3,4\n",
    "escapes.csv": lambda: b"\x1b[31m,b\n1,x\n",
    "none.npz": lambda: b"PK",
}
CODECS = ("plain", "zstd", "gzip", "blosc", "crc", "sharded", "old")
CASES = [
    *(("m.npy", name, change) for name, change in NPY.items()),
    *(("m.safetensors", name, change) for name, change in SAFETENSORS.items()),
    *((f"{codec}.zarr", "cut", CHUNKS["cut"]) for codec in CODECS),
    *(("plain.zarr", name, change) for name, change in CHUNKS.items() if name != "cut"),
    *(("plain.zarr", f"metadata: {name}", change) for name, change in METADATA.items()),
]
_ROWS, _TARGETS = "log_probs/c/0/0", "targets/c/0"
STORE: dict[str, tuple[str, Damage]] = {
    "rows missing": (_ROWS, damage.remove),
    "rows from a pipe": (_ROWS, pipe_instead),
    "targets from a pipe": (_TARGETS, pipe_instead),
    "attributes from a pipe": ("zarr.json", pipe_instead),
    "rows flipped": (_ROWS, damage.flip(0.5)),
    "targets missing": (_TARGETS, damage.remove),
    "targets flipped": (_TARGETS, damage.flip(0.5)),
    **{f"{place} {value!r}"[:40]: ("zarr.json", with_value(f"attributes.{place}", value)) for place, value in (
        ("chunk_rows", 0), ("chunk_rows", 10**12), ("contexts", "many"), ("contexts", 10**30), ("vocab", -1),
        ("dtype", "object"), ("eps", 5), ("eps", {}), ("bound", []), ("source", None), ("source", {}),
        ("identity", damage.REMOVED), ("targets_sha256", 7), ("embedding_size", 0.5), ("sha256", "0"), ("format", 5))},
}  # fmt: skip


STORES = [("store.zarr", name, file, change) for name, (file, change) in STORE.items()]
DAMAGED = [*((file, name, "", change) for file, name, change in CASES), *STORES]


@pytest.mark.parametrize(
    ("name", "file", "change"), [(n, f, c) for n, _, f, c in DAMAGED], ids=[f"{n}, {d}" for n, d, _, _ in DAMAGED]
)
def test_a_damaged_matrix(name: str, file: str, change: Damage, refusal: Callable[..., str]) -> None:
    refusal((name, "s.npz"), f"{name}/{file}".rstrip("/"), change, f"rank {name}")


@pytest.mark.parametrize("name", NAMED)
def test_a_damaged_file_of_named_arrays(name: str, place: Callable[..., Path]) -> None:
    folder = place()
    (folder / name.partition(":")[0]).write_bytes(NAMED[name]())
    before = promise.snapshot(folder)
    promise.check(promise.run(["rank", name, "--kind", "matrix"]))
    assert promise.snapshot(folder) == before


def _npy(matrix: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, matrix, **options)
    return buffer.getvalue()


def test_every_flipped_bit_of_a_header(tmp_path: Path) -> None:
    """What is still read has the shape that was written: its entries are all there, and nothing else is."""
    matrix = np.arange(15.0).reshape(5, 3)
    data, file = _npy(matrix), tmp_path / "m.npy"
    refused = 0
    for bit in range(8 * (len(data) - matrix.nbytes)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << (bit % 8)
        file.write_bytes(bytes(changed))
        try:
            source = open_matrix(file, kind="matrix")
            assert source.shape[0] * source.shape[1] == matrix.size
        except BottleneckError:
            refused += 1
    assert refused > 600  # the others change spaces, the order of bytes, or the type to one of the same size


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_those_of_numpy(order: Any, tmp_path: Path) -> None:
    matrix = np.asarray(np.random.default_rng(0).standard_normal((50, 7)), dtype=">f4", order=order)
    np.save(tmp_path / "m.npy", matrix)
    source = open_matrix(tmp_path / "m.npy", kind="matrix")
    for rows in (range(50), range(3, 4), range(20, 41)):
        (block,) = source.blocks([rows])
        assert np.array_equal(block.log_probs, matrix[rows.start : rows.stop])


@pytest.mark.parametrize("name", ["m.npy", "m.safetensors"])
@pytest.mark.parametrize("size", [0, 1000])
def test_a_file_that_becomes_shorter(name: str, size: int, originals: Callable[[str], Path], tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(originals(name).read_bytes())
    source = open_matrix(file)
    os.truncate(file, size)
    with pytest.raises(BottleneckError, match=r"became shorter|changed while it was read"):
        list(source.blocks())


def test_a_file_that_changes_between_two_passes(originals: Callable[[str], Path], tmp_path: Path) -> None:
    file = tmp_path / "m.npy"
    file.write_bytes(originals("m.npy").read_bytes())
    source = open_matrix(file)
    list(source.blocks())
    with file.open("r+b") as other:
        other.seek(-8, os.SEEK_END)
        other.write(b"\0" * 8)
    os.utime(file, ns=(1, 1))
    with pytest.raises(BottleneckError, match="changed while it was read"):
        list(source.blocks())
