"""Arrays of dask and xarray: measured in blocks of rows, as the NumPy array that they would compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from numpy.typing import NDArray

import softmax_bottleneck as sb
from softmax_bottleneck.bench.in_turn import _resident_memory
from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.sources import open_source

KINDS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "dask in blocks of rows": lambda array: da.from_array(array, chunks=(7, -1)),
    "dask in blocks of columns": lambda array: da.from_array(array, chunks=(-1, 3)),
    "dask in tiles": lambda array: da.from_array(array, chunks=(11, 4)),
    "xarray": lambda array: xr.DataArray(array, dims=("context", "token")),
    "xarray around dask": lambda array: xr.DataArray(array, dims=("context", "token")).chunk(context=9, token=5),
}


class OfMlx:
    """An array of MLX in bfloat16, whose numbers neither NumPy's protocol nor a buffer gives."""

    dtype, ndim = "mlx.core.bfloat16", 2

    def __init__(self, numbers: torch.Tensor) -> None:
        self._numbers, self.shape = numbers, numbers.shape

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, rows: slice) -> OfMlx:
        return OfMlx(self._numbers[rows])

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("'bfloat16' is not a valid PEP 3118 buffer format string")

    def __dlpack__(self, **given: Any) -> Any:
        return self._numbers.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return self._numbers.__dlpack_device__()


def test_bfloat16_of_mlx_is_that_of_torch() -> None:
    logits, states = (torch.randn(90, size).bfloat16() for size in (7, 4))
    ours, theirs = (sb.rank(kind(logits), kind="logits") for kind in (OfMlx, lambda same: same))
    np.testing.assert_array_equal(ours.spectrum.values, theirs.spectrum.values)
    assert (ours.rank, ours.eps) == (theirs.rank, theirs.eps)
    layer = torch.nn.Linear(4, 9)
    assert len({str(sb.rank(layer, hidden=given).rank) for given in (OfMlx(states), states)}) == 1


@pytest.fixture(autouse=True)
def _in_this_thread() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_measured_as_the_array_is(kind: str, log_probs: Any, tmp_path: Path) -> None:
    array = log_probs(60, 10)
    lazy = KINDS[kind](array)
    report, expected = sb.rank(lazy, kind="log-probs"), sb.rank(array, kind="log-probs")
    np.testing.assert_array_equal(report.spectrum.values, expected.spectrum.values)
    assert report.eps == expected.eps
    assert sb.kld(lazy, kind="log-probs").kld == sb.kld(array, kind="log-probs").kld
    for pair, plain in (((lazy, array[::-1]), (array, array[::-1])), ((array[::-1], lazy), (array[::-1], array))):
        found = sb.compare(*pair, kind="log-probs")
        assert found.statistics == sb.compare(*plain, kind="log-probs").statistics
        assert found.statistics["kl"].value > 0
    store = sb.dump(lazy, tmp_path / "store.zarr", kind="log-probs")
    np.testing.assert_array_equal(np.concatenate([block.log_probs for block in open_source(store).blocks()]), array)


def test_a_size_that_is_not_known_is_asked_for() -> None:
    array = da.from_array(np.eye(6, 4), chunks=2)
    unknown = array[da.from_array(np.arange(6), chunks=2) < 5]
    with pytest.raises(MatrixError, match=r"does not know its size, \(nan, 4\): call its method compute_chunk_sizes"):
        sb.rank(unknown, kind="matrix")
    assert sb.rank(unknown.compute_chunk_sizes(), kind="matrix").rank.value == 4


def test_a_matrix_larger_than_the_memory_it_takes() -> None:
    """A product of rank 5, of which some rows at a time are computed."""
    T, M = 40_000, 1_500
    left, right = (np.random.default_rng(seed).standard_normal(shape) for seed, shape in ((0, (T, 5)), (1, (5, M))))
    lazy = da.from_array(left, chunks=(1_000, 5)) @ da.from_array(right, chunks=(5, M))
    added_memory = _resident_memory()
    assert sb.rank(lazy, kind="matrix", method="sketch", width=16).rank.value == 5
    assert added_memory() < 8 * T * M / 2
