"""Every method, whole and in parts, against spectra known on paper, NumPy's SVD and exact integer ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from softmax_bottleneck.spectrum import TSQR, Accelerator, Dense, Gram, WideGram, decompose, numerical_rank
from softmax_bottleneck.spectrum.base import Stream
from softmax_bottleneck.spectrum.certificate import finish
from softmax_bottleneck.spectrum.compute import extended, started

from .methods import EPS, METHODS, TO_ROUNDOFF_OF_SIGMA, Matrix, assert_close, built, centred, spectrum_of


@pytest.mark.parametrize("rows", [1, 7, None], ids=["rows", "odd blocks", "whole"])
@pytest.mark.parametrize("shape", [(50, 30), (30, 50)], ids=["tall", "wide"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", METHODS)
def test_prescribed_spectra(method: str, dtype: type[np.floating], shape: tuple[int, int], rows: int | None) -> None:
    prescribed = np.geomspace(1.0, 1e-3, 12)
    matrix = built(prescribed, *shape).astype(dtype)
    found = spectrum_of(method, matrix, rows)
    assert found.shape == shape
    assert found.method == method.split(",")[0]
    assert found.driver
    assert found.values.shape == found.centered.shape == (30,)
    assert found.frobenius_relative_error < 1e-13
    for values in (found.values, found.centered):
        assert (np.diff(values) <= 0).all()
        assert (values >= 0).all()
    # Rounding to float32 moves singular values by at most the norm of what was rounded off.
    moved = float(np.linalg.norm(matrix.astype(np.float64) - built(prescribed, *shape)))
    np.testing.assert_allclose(found.values[:12], prescribed, rtol=0, atol=moved + 1e-12)
    assert_close(method, found.values, np.linalg.svd(matrix.astype(np.float64), compute_uv=False), size=50)
    assert_close(method, found.centered, np.linalg.svd(centred(matrix), compute_uv=False), size=50)


@pytest.mark.parametrize("method", METHODS)
def test_the_caller_may_reuse_its_block(method: str) -> None:
    matrix, block = np.random.default_rng(0).standard_normal((12, 6)), np.empty((4, 6))

    def blocks() -> Iterator[Matrix]:
        for start in range(0, 12, 4):
            block[:] = matrix[start : start + 4]
            yield block
            np.testing.assert_array_equal(block, matrix[start : start + 4])
        block[:] = np.nan

    found = decompose(blocks(), METHODS[method](6))
    assert_close(method, found.values, np.linalg.svd(matrix, compute_uv=False), size=12)
    assert (found.centered[5], found.centered[4] > 0.1) == (0, True)  # what centring projects out is exactly zero
    assert numerical_rank(found.centered, shape=(12, 6), eps="float64").determinate


@pytest.mark.parametrize("method", METHODS)
def test_zero_and_constant_rows(method: str) -> None:
    zero = spectrum_of(method, np.zeros((6, 4)), 4)
    assert not zero.values.any()
    assert not zero.centered.any()
    assert zero.frobenius_relative_error == 0
    equal_rows = spectrum_of(method, np.tile([1.0, 2.0, 4.0], (5, 1)))
    assert int(numerical_rank(equal_rows.values, shape=(5, 3), eps=1e-7)) == 1
    assert equal_rows.values[0] == pytest.approx(math.sqrt(5 * 21))
    constant_rows = spectrum_of(method, np.outer([1.0, -2.0, 5.0], np.ones(8)))
    assert int(numerical_rank(constant_rows.values, shape=(3, 8), eps="float32")) == 1
    assert constant_rows.centered[0] <= 8 * EPS * constant_rows.values[0]


@pytest.mark.parametrize("method", METHODS)
@given(
    seed=st.integers(0, 2**32 - 1),
    T=st.integers(1, 14),
    M=st.integers(1, 14),
    rank=st.integers(1, 6),
    rows=st.integers(1, 15),
    exponent=st.integers(-300, 300),
    shift=st.sampled_from([0.0, 1e-2, 1.0, 30.0]),
)
@example(seed=5, T=14, M=4, rank=1, rows=5, exponent=0, shift=0.01)
@example(seed=5, T=1, M=1, rank=1, rows=2, exponent=0, shift=1.0)
@settings(max_examples=60, deadline=None)
def test_order_scale_blocks_and_a_constant_added_to_each_row(
    method: str, seed: int, T: int, M: int, rank: int, rows: int, exponent: int, shift: float
) -> None:
    """The constants change no row-centred value: proposition 1 of Yang et al. 2018."""
    rng = np.random.default_rng(seed)
    product = rng.standard_normal((T, rank)) @ rng.standard_normal((rank, M))
    matrix = product + shift * rng.standard_normal((T, 1))
    raw, middle = (np.linalg.svd(each, compute_uv=False) for each in (matrix, centred(product)))
    shuffled = matrix[rng.permutation(T)][:, rng.permutation(M)]
    for given_rows, scale in ((matrix, 1.0), (shuffled, 1.0), (matrix * 2.0**exponent, 2.0**exponent)):
        found = spectrum_of(method, given_rows, rows)
        assert found.values.shape == (min(T, M),)
        assert_close(method, found.values / scale, raw, size=20)
        assert_close(method, found.centered / scale, middle, size=20, sigma_1=float(raw[0]))


@pytest.mark.parametrize("method", METHODS)
def test_states_of_two_halves_merge_to_the_whole(method: str) -> None:
    matrix = np.random.default_rng(0).standard_normal((45, 9))
    computation, whole = METHODS[method](9), spectrum_of(method, matrix)
    parts = [extended(computation, started(computation), rows) for rows in np.split(matrix.copy(), [7, 30])]
    state = reduce(computation.merge, (part.state for part in parts))
    merged = finish(computation, Stream(state, sum(part.totals for part in parts)))  # type: ignore[arg-type]
    assert merged.shape == whole.shape == (45, 9)
    np.testing.assert_allclose(merged.values, whole.values, rtol=1e-10)
    np.testing.assert_allclose(merged.centered, whole.centered, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", [Dense, Gram, WideGram, TSQR])
def test_a_state_from_one_arithmetic_is_another_ones_too(method: type[Gram]) -> None:
    """On the CPU ``syrk`` leaves a triangle empty; the first choice of routines must not stumble over it."""
    matrix = np.random.default_rng(0).standard_normal((45, 9)) + 2.0
    first, second = method(9), method(9, arithmetic=Accelerator(torch.device("cpu")))
    stream = extended(first, started(first), matrix)
    found, expected = finish(second, stream), finish(first, stream)
    assert found.driver in ("cpu syevd", "cpu svdvals")
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-10)
    np.testing.assert_allclose(found.centered, expected.centered, rtol=1e-10, atol=1e-12)


def kahan(n: int) -> Matrix:
    s = math.sin(1.2)
    matrix: Matrix = np.diag(s ** np.arange(n)) @ (np.eye(n) - math.cos(1.2) * np.triu(np.ones((n, n)), 1))
    return matrix


@pytest.mark.parametrize("method", TO_ROUNDOFF_OF_SIGMA)
def test_kahans_matrix(method: str) -> None:
    """Its last σ lies far below the last pivot of a pivoted QR; det is the product of the diagonal."""
    matrix = kahan(60)
    found = spectrum_of(method, matrix, 13)
    log_determinant = np.log(np.diag(matrix)).sum()
    assert np.log(found.values).sum() == pytest.approx(log_determinant, rel=1e-6)
    assert found.values[-1] < 1e-2 * np.diag(matrix)[-1]
