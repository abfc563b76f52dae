"""Check and convert blocks of rows: arrays and tensors of any real type."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MatrixError
from .precision import EPS


def gathered(blocks: Iterable[NDArray[Any]], rows: int, order: str, exponent: int = 0) -> Iterator[NDArray[np.float64]]:
    """Yield the rows times 2^−exponent in float64, ``rows`` at a time and then the rest, in one buffer of an order."""
    memory, filled, columns = np.empty(0), 0, 0
    for block in blocks:
        if not memory.size:
            columns = block.shape[1]
            memory = np.empty(rows * columns)
            buffer = memory.reshape((rows, columns), order=order)  # type: ignore[call-overload]
        start = 0
        while start < len(block):
            some = block[start : start + rows - filled]
            place = buffer[filled : filled + len(some)]
            place[:] = np.ldexp(some, -exponent, dtype=np.float64) if exponent else some
            start, filled = start + len(some), filled + len(some)
            if filled == rows:
                yield buffer
                filled = 0
    if filled:
        for column in range(1, columns if order == "F" else 0):  # close up, within the memory
            memory[column * filled : (column + 1) * filled] = memory[column * rows : column * rows + filled]
        yield memory[: filled * columns].reshape((filled, columns), order=order)  # type: ignore[call-overload]


def checked(
    blocks: Iterable[Any],
    *,
    what: str = "the matrix",
    start: int = 0,
    may_be_empty: bool = False,
    minus_inf: bool = False,
    remedy: str = "leave out the columns of such tokens, and normalize the rows again",
) -> Iterator[NDArray[Any]]:
    """Yield the blocks as arrays; `MatrixError` names the first row and column that is not finite.

    ``start`` is the first block's first row; ``minus_inf`` lets −∞ pass; ``remedy`` says what to do about −∞.
    """
    columns = None
    for block in blocks:
        rows = as_array(block)
        check_shape(rows.shape, "a block of rows")
        if columns is not None and rows.shape[1] != columns:
            raise MatrixError(f"the block at row {start} has {rows.shape[1]} columns, the ones before it {columns}")
        columns = rows.shape[1]
        # A sum is finite only if all its terms are: one pass without an array of answers. Overflow asks again.
        with np.errstate(over="ignore", invalid="ignore"):
            finite = bool(np.isfinite(rows.sum()))
        if not finite and len(bad := np.argwhere(~(rows < np.inf) if minus_inf else ~np.isfinite(rows))):
            row, column = bad[0]
            masked = rows[row, column] == -np.inf
            raise MatrixError(
                f"{what} holds {rows[row, column]} at row {start + row}, column {column}: only finite "
                "numbers can be measured; ",
                remedy if masked else "fix what made it",
            )
        yield rows
        start += len(rows)
    if columns is None and not may_be_empty:
        raise MatrixError(f"{what} is empty: there are no rows to measure")


def check_shape(shape: tuple[int, ...], what: str) -> None:
    """Refuse anything but a two-dimensional matrix with at least one row and column."""
    if len(shape) != 2:
        remedy = REMEDIES.get(len(shape), "")
        raise MatrixError(f"{what} must have two dimensions (contexts × tokens), not shape {tuple(shape)}{remedy}")
    if any(map(math.isnan, shape)):
        raise MatrixError(f"{what} does not know its size, {tuple(shape)}: call its method compute_chunk_sizes first")
    if min(shape) < 1:
        raise MatrixError(f"{what} is empty: its shape is {tuple(shape)}")
    if math.prod(shape) > LARGEST:
        raise MatrixError(f"{what} is too large to be measured: its shape is {tuple(shape)}; take fewer rows")


def is_array(value: Any) -> bool:
    """Return whether a value is one array or tensor; a nested tensor is one, and has no shape to look at."""
    return getattr(value, "is_nested", False) is True or hasattr(value, "shape")


def check_dense(tensor: Any, what: str) -> None:
    """Refuse a tensor of torch that NumPy cannot read: a sparse, nested or quantized one, or one without entries."""
    if getattr(tensor, "is_nested", False) is True:
        raise MatrixError(f"{what} is a nested tensor: join its rows by torch.cat(tensor.unbind())")
    if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided" or any(
        getattr(tensor, name, False) for name in ("is_meta", "is_quantized")
    ):
        raise MatrixError(f"{what} is a sparse, quantized or empty tensor: give a dense one, tensor.to_dense()")


def check_untyped(dtype: Any, what: str) -> None:
    """Refuse bfloat16 or an 8-bit float as ``np.save`` writes it: bytes without their type."""
    if dtype.kind == "V" and not dtype.names and dtype.itemsize in UNTYPED:
        name, integer = UNTYPED[dtype.itemsize]
        raise MatrixError(
            f"{what} holds {dtype}, which is {name} without its type, as np.save writes it: with array = np.load(FILE) "
            f"give torch.from_numpy(array.view('{integer}')).view(torch.{name}), or save that by torch.save"
        )


UNTYPED = {2: ("bfloat16", "int16"), 1: ("float8_e4m3fn", "int8")}
"""Bytes of an entry without a type → the type that it most likely has, and integers of its size."""
REMEDIES = {
    1: ": numpy.array(rows) makes a matrix of a list of rows",
    3: ": cut off the padding and join the texts by reshape(-1, M)",
}
"""Number of dimensions → what to do about it."""
LARGEST = 2**53
"""Entries of the largest matrix: any more could not be counted in float64."""
WHOLE = "whole numbers"
"""Name that `native_dtype` gives integers and booleans, which were never rounded."""


def native_dtype(block: Any) -> str:
    """Return the type of an array or tensor: a key of `EPS`, or `WHOLE` for integers and booleans.

    Of a table whose columns have several types, the least precise one counts.
    """
    if hasattr(block, "columns"):
        if not hasattr(block, "dtypes"):
            raise MatrixError(f"a {type(block).__name__} is not read as numbers: give its to_pandas()")
        names = {type_name(dtype) for dtype in block.dtypes}
        return max(names - {WHOLE}, key=EPS.__getitem__, default=WHOLE)
    return type_name(getattr(block, "dtype", "float64"))


def type_name(dtype: Any) -> str:
    """Return the name of a type of NumPy, torch or a data frame: a key of `EPS`, or `WHOLE`."""
    name = str(dtype).rpartition(".")[2].lower()  # without the package: torch.float32, mlx.core.float32
    if name in EPS:
        return name
    if name.startswith(("int", "uint", "bool")):
        return WHOLE
    return {"f2": "float16", "f4": "float32"}.get(name.lstrip("<>="), "float64")


def as_array(block: Any) -> NDArray[Any]:
    """Return a NumPy array of float16, float32 or float64; tensors are copied to the CPU.

    Types that NumPy lacks are widened to float32; `native_dtype` returns the original type.

    Raises:
        MatrixError: for numbers that are not real, or too small for float64.
    """
    narrow = native_dtype(block) not in ("float64", "float32", "float16", WHOLE)
    if hasattr(block, "detach"):
        check_dense(block, "the matrix")
        block = block.detach().cpu().resolve_neg().resolve_conj()
        block = block.float() if narrow else block
    try:
        array = np.asarray(block)
        array = array.astype(np.float32) if narrow else array
    except TypeError as error:  # torch's 4-bit floats
        raise MatrixError(f"a matrix cannot hold {block.dtype}: convert it to float32 first") from error
    except ValueError as error:
        if not (narrow and hasattr(block, "__dlpack__")):
            raise MatrixError("the rows of a matrix must have one length: give as many numbers in each") from error
        from torch.utils.dlpack import from_dlpack  # MLX's bfloat16, for which NumPy has no type

        array = from_dlpack(block).float().numpy()
    if isinstance(array, np.ma.MaskedArray) or isinstance(block, np.ma.MaskedArray):
        raise MatrixError("a masked array has no rank: fill what is masked (numpy.ma.filled), or drop such columns")
    check_untyped(array.dtype, "the matrix")
    if array.dtype.kind not in "fiub":
        remedy = ": convert it by .astype('float64'), or .toarray() if it is sparse" if array.dtype == object else ""
        raise MatrixError(f"a matrix must hold real numbers, not {array.dtype}{remedy}")
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        double = array.astype(np.float64)
        if array.dtype.kind == "f" and bool(((double == 0) & (array != 0)).any()):
            raise MatrixError("the matrix holds numbers too small for float64: multiply it by a power of two")
        return double
    return array.astype(array.dtype.newbyteorder("="), copy=False)
