"""Names and numbers of eps, and what the numbers of a matrix tell of their origin."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from softmax_bottleneck.spectrum import EPS, Inspection, Precision, precision
from softmax_bottleneck.spectrum.blocks import as_array, native_dtype

NOISE = np.random.default_rng(0).standard_normal((40, 9))


def found(*blocks: NDArray[np.floating], language: bool = False) -> Precision:
    inspection = Inspection(dtypes=map(native_dtype, blocks), language=language)
    for block in blocks:
        inspection.watch(block)
    return inspection.precision


def through(name: str) -> NDArray[np.float64]:
    """Genuine float64 numbers rounded to another type and read back as float64."""
    dtype = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    values: NDArray[np.float64] = torch.from_numpy(NOISE).to(dtype[name]).double().numpy()
    return values


def test_eps_of_each_type_is_that_of_its_makers() -> None:
    for name in ("float64", "float32", "float16"):
        assert EPS[name] == np.finfo(name).eps
    for name in EPS:
        assert EPS[name] == torch.finfo(getattr(torch, name)).eps
        assert precision(name, assumed=True) == Precision(EPS[name], name, assumed=True)
    assert precision("1e-5") == precision(1e-5) == Precision(1e-5, None, assumed=False)


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float16"])
def test_upcast_numbers_are_judged_by_the_type_they_came_from(name: str) -> None:
    assert found(through(name)) == Precision(EPS[name], name, assumed=True)
    assert found(*np.array_split(through(name), 7)).dtype == name


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", ">f8"])
def test_a_dtype_is_its_own_origin(dtype: str | type) -> None:
    block = as_array(NOISE.astype(dtype))
    assert found(block).dtype == block.dtype.name


def test_of_blocks_of_several_dtypes_the_narrowest_counts() -> None:
    single = NOISE.astype(np.float32)
    for blocks in ((single, NOISE), (NOISE, single), (NOISE, single, NOISE)):
        assert found(*blocks).dtype == "float32"
    assert found(NOISE.astype(np.float16), single).dtype == "float16"


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=9), st.sampled_from([np.float32, np.float64]))
def test_integers_are_exempt(integers: list[int], dtype: type[np.floating]) -> None:
    assert found(np.array([integers], dtype)).dtype == np.dtype(dtype).name


def test_numbers_beyond_two_to_the_53_are_whole_and_no_counts() -> None:
    noise = found(1e290 * NOISE[:, :3] @ NOISE[:30, 3:6].T).noise
    assert noise is not None
    assert noise.deviation > 0


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (1e30, "float64"), (2.0**17, "bfloat16"), (2.0**140, "float64"), (1 + 2.0**-7, "bfloat16"),
        (1 + 2.0**-8, "float16"), (1 + 2.0**-10, "float16"), (1 + 2.0**-11, "float32"), (1 + 2.0**-24, "float64"),
    ],
)  # fmt: skip
def test_the_range_and_the_last_bit_decide(number: float, dtype: str) -> None:
    """bfloat16 keeps 8 significant bits and float16 11."""
    assert found(np.array([[0.5, number]])).dtype == dtype
