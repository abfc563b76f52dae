"""Every method against one set of oracles: prescribed spectra, NumPy's SVD, exact integer ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.spectrum import (
    TSQR,
    Accelerator,
    Dense,
    Factored,
    Gram,
    Host,
    Spectrum,
    SpectrumMethod,
    WideGram,
    measure,
    numerical_rank,
    tolerance,
)
from softmax_bottleneck.spectrum.gram import RESOLUTION, check_resolution

Matrix = NDArray[np.float64]
Build = Callable[..., Matrix]

EPS = float(np.finfo(np.float64).eps)
METHODS: dict[str, Callable[[int], SpectrumMethod]] = {}
for kind, arithmetic in {"": Host(), ", accelerator": Accelerator(torch.device("cpu"))}.items():
    METHODS |= {
        f"dense{kind}": partial(Dense, arithmetic=arithmetic),
        f"gram{kind}": partial(Gram, arithmetic=arithmetic),
        f"gram, wide{kind}": partial(WideGram, arithmetic=arithmetic),
        f"tsqr{kind}": partial(TSQR, arithmetic=arithmetic),
        # A = A Iᵀ: the trivial factors of any matrix.
        f"factored{kind}": lambda columns, arithmetic=arithmetic: Factored(np.eye(columns), arithmetic=arithmetic),
    }
TO_ROUNDOFF_OF_SIGMA = [method for method in METHODS if not method.startswith("gram")]


def spectrum_of(method: str, matrix: NDArray[np.floating], rows: int | None = None) -> Spectrum:
    """Feed a matrix in blocks of ``rows``."""
    step = rows or len(matrix)
    blocks = (matrix[start : start + step] for start in range(0, len(matrix), step))
    return measure(blocks, METHODS[method](matrix.shape[1]))


def centred(matrix: NDArray[np.floating]) -> Matrix:
    wide = matrix.astype(np.float64)
    return wide - wide.mean(1, keepdims=True)


def assert_close(method: str, found: Matrix, expected: Matrix, *, size: int, sigma_1: float | None = None) -> None:
    """Compare within roundoff: of σ for LAPACK on A, of σ² for LAPACK on AᵀA."""
    scale = expected[0] if sigma_1 is None else sigma_1
    if method.startswith("gram"):
        np.testing.assert_allclose(found**2, expected**2, rtol=0, atol=8 * size * EPS * scale**2)
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=8 * math.sqrt(size) * EPS * scale)


@pytest.mark.parametrize("rows", [1, 7, None], ids=["rows", "odd blocks", "whole"])
@pytest.mark.parametrize("shape", [(50, 30), (30, 50)], ids=["tall", "wide"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", METHODS)
def test_prescribed_spectra(
    built: Build, method: str, dtype: type[np.floating], shape: tuple[int, int], rows: int | None
) -> None:
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


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)], ids=["tall", "wide"])
@pytest.mark.parametrize(
    ("above", "below", "determinate"),
    [(1e3, 1e-3, True), (20.0, 0.05, True), (5.0, 0.05, False), (20.0, 0.2, False), (1.5, 0.7, False)],
    ids=["wide gap", "just outside the margin", "near from above", "near from below", "across"],
)
@pytest.mark.parametrize("method", METHODS)
def test_gaps_about_the_tolerance(
    built: Build, method: str, above: float, below: float, determinate: bool, shape: tuple[int, int]
) -> None:
    limit = tolerance(1.0, shape, 2.0**-20, "press")
    prescribed = np.concatenate([np.geomspace(1.0, above * limit, 9), [below * limit] * 5])
    found = spectrum_of(method, built(prescribed, *shape), 7)
    estimate = numerical_rank(found.values, shape=shape, eps=2.0**-20)
    assert (estimate.value, estimate.determinate) == (9, determinate)
    assert estimate.low == np.count_nonzero(prescribed > 10 * limit)
    assert estimate.high == np.count_nonzero(prescribed > limit / 10)


@pytest.mark.parametrize("method", TO_ROUNDOFF_OF_SIGMA)
def test_float64_gaps_that_gram_cannot_see(built: Build, method: str) -> None:
    shape = (60, 40)
    limit = tolerance(1.0, shape, EPS, "press")
    # What is not prescribed is the builder's own roundoff: a few eps, below limit / 10 ≈ ½ eps only in part.
    prescribed = np.concatenate([np.geomspace(1.0, 100 * limit, 11)])
    found = spectrum_of(method, built(prescribed, *shape))
    assert numerical_rank(found.values, shape=shape, eps="float64").value == 11
    assert numerical_rank(found.values, shape=shape, eps="float32").value < 11


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rank", [1, 4, 9])
def test_integer_products_have_their_exact_rank(
    exact_rank: Callable[[NDArray[np.int64]], int], method: str, rank: int
) -> None:
    rng = np.random.default_rng(rank)
    matrix = rng.integers(-4, 5, (22, rank)) @ rng.integers(-4, 5, (rank, 14))
    centred_times_M = 14 * matrix - matrix.sum(1, keepdims=True)
    found = spectrum_of(method, matrix, 5)
    for values, integers in ((found.values, matrix), (found.centered, centred_times_M)):
        assert int(numerical_rank(values, shape=(22, 14), eps="float32")) == exact_rank(integers)
    assert exact_rank(matrix) == rank


@pytest.mark.parametrize("method", METHODS)
def test_the_rank_of_block_sums_adds(built: Build, method: str) -> None:
    one, other = built(np.linspace(1, 2, 5), 20, 12), built(np.linspace(1, 3, 8), 15, 18, seed=1)
    both = np.zeros((35, 30))
    both[:20, :12], both[20:, 12:] = one, other
    found = spectrum_of(method, both, 4)
    assert int(numerical_rank(found.values, shape=both.shape, eps="float32")) == 5 + 8
    expected = np.sort(np.concatenate([np.linspace(1, 2, 5), np.linspace(1, 3, 8)]))[::-1]
    np.testing.assert_allclose(found.values[:13], expected, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_caller_may_reuse_its_block(method: str) -> None:
    matrix = np.random.default_rng(0).standard_normal((12, 6))
    computation, block = METHODS[method](6), np.empty((4, 6))
    for start in range(0, 12, 4):
        block[:] = matrix[start : start + 4]
        computation.update(block)
        np.testing.assert_array_equal(block, matrix[start : start + 4])
    block[:] = np.nan
    assert_close(method, computation.finish().values, np.linalg.svd(matrix, compute_uv=False), size=12)


def hartley(n: int) -> tuple[Matrix, Matrix]:
    """The real discrete Fourier transform cos + sin: orthogonal up to √n."""
    angle = 2 * math.pi * np.outer(np.arange(n), np.arange(n)) / n
    return np.cos(angle) + np.sin(angle), np.full(n, math.sqrt(n))


def hadamard(n: int) -> tuple[Matrix, Matrix]:
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix, np.full(len(matrix), math.sqrt(len(matrix)))


def second_difference(n: int) -> tuple[Matrix, Matrix]:
    matrix = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    return matrix, 4 * np.sin(np.arange(1, n + 1) * math.pi / (2 * (n + 1))) ** 2


def minij(n: int) -> tuple[Matrix, Matrix]:
    index = np.arange(1.0, n + 1)
    return np.minimum.outer(index, index), 0.25 / np.sin((2 * index - 1) * math.pi / (4 * n + 2)) ** 2


def circulant(n: int) -> tuple[Matrix, Matrix]:
    first = np.random.default_rng(n).standard_normal(n)
    return np.array([np.roll(first, k) for k in range(n)]), np.abs(np.fft.fft(first))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", [hartley, hadamard, second_difference, minij, circulant])
def test_analytic_spectra(method: str, family: Callable[[int], tuple[Matrix, Matrix]]) -> None:
    matrix, expected = family(32)
    expected = np.sort(expected)[::-1]
    found = spectrum_of(method, matrix, 9)
    assert_close(method, found.values, expected, size=len(matrix))
    assert_close(method, found.centered, np.linalg.svd(centred(matrix), compute_uv=False), size=len(matrix))


@pytest.mark.parametrize("method", METHODS)
def test_centring_the_hartley_matrix_removes_its_constant_row(method: str) -> None:
    found = spectrum_of(method, hartley(24)[0], 5)
    assert_close(method, found.centered, np.append(np.full(23, math.sqrt(24)), 0.0), size=24)


def hilbert(n: int) -> Matrix:
    return 1 / (np.add.outer(np.arange(n), np.arange(n)) + 1.0)


def gaussian_kernel(n: int) -> Matrix:
    x = np.linspace(0, 3, n)
    return np.exp(-(np.subtract.outer(x, x) ** 2))


def kahan(n: int) -> Matrix:
    s = math.sin(1.2)
    matrix: Matrix = np.diag(s ** np.arange(n)) @ (np.eye(n) - math.cos(1.2) * np.triu(np.ones((n, n)), 1))
    return matrix


@pytest.mark.parametrize("family", [hilbert, gaussian_kernel])
@pytest.mark.parametrize("method", METHODS)
def test_gapless_matrices_are_indeterminate(method: str, family: Callable[[int], Matrix]) -> None:
    found = spectrum_of(method, family(40), 11)
    estimate = numerical_rank(found.values, shape=(40, 40), eps="float32")
    assert not estimate.determinate
    assert estimate.low < estimate.high < 40


@pytest.mark.parametrize("method", TO_ROUNDOFF_OF_SIGMA)
def test_kahans_matrix(method: str) -> None:
    """Its last σ lies far below the last pivot of a pivoted QR; det is the product of the diagonal."""
    matrix = kahan(60)
    found = spectrum_of(method, matrix, 13)
    log_determinant = np.log(np.diag(matrix)).sum()
    assert np.log(found.values).sum() == pytest.approx(log_determinant, rel=1e-6)
    assert found.values[-1] < 1e-2 * np.diag(matrix)[-1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (3, 8)])
def test_small_shapes(method: str, shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).standard_normal(shape) + 3
    found = spectrum_of(method, matrix, 2)
    assert found.values.shape == (min(shape),)
    assert_close(method, found.values, np.linalg.svd(matrix, compute_uv=False), size=9)
    expected = np.linalg.svd(centred(matrix), compute_uv=False)
    assert_close(method, found.centered, expected, size=9, sigma_1=float(found.values[0]))


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
)
@settings(max_examples=40, deadline=None)
def test_order_scale_and_blocks_change_nothing(
    method: str, seed: int, T: int, M: int, rank: int, rows: int, exponent: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((T, rank)) @ rng.standard_normal((rank, M))
    expected = np.linalg.svd(matrix, compute_uv=False)
    assert_close(method, spectrum_of(method, matrix, rows).values, expected, size=20)
    shuffled = matrix[rng.permutation(T)][:, rng.permutation(M)]
    assert_close(method, spectrum_of(method, shuffled, rows).values, expected, size=20)
    scale = 2.0**exponent
    scaled = spectrum_of(method, matrix * scale, rows)
    assert_close(method, scaled.values / scale, expected, size=20)


@pytest.mark.parametrize("method", METHODS)
@given(
    seed=st.integers(0, 2**32 - 1),
    T=st.integers(4, 16),
    M=st.integers(4, 16),
    rank=st.integers(1, 6),
    size=st.sampled_from([1e-2, 1.0, 30.0]),
)
@settings(max_examples=40, deadline=None)
def test_a_constant_added_to_each_row(method: str, seed: int, T: int, M: int, rank: int, size: float) -> None:
    """Proposition 1 of the MoS paper: the logits of one distribution differ by such constants."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-3, 4, (T, rank)) @ rng.integers(-3, 4, (rank, M)) / 4.0
    moved = matrix + size * rng.standard_normal((T, 1))
    before, after = spectrum_of(method, matrix, 5), spectrum_of(method, moved, 5)
    raw, centered = (
        [int(numerical_rank(values, shape=(T, M), eps=1e-5)) for values in pair]
        for pair in ((before.values, after.values), (before.centered, after.centered))
    )
    assert abs(raw[0] - raw[1]) <= 1
    # The constants' roundoff: eps of their size, on every entry.
    np.testing.assert_allclose(
        before.centered,
        after.centered,
        rtol=0,
        atol=(1e-7 if method.startswith("gram") else 1e-13) * max(before.centered[0], size * math.sqrt(T * M)),
    )
    assert centered[0] <= raw[0] <= centered[0] + 1


@pytest.mark.parametrize("shape", [(40, 30), (12, 30), (5, 30), (40, 4)], ids=["tall", "wide", "T < r", "M < r"])
def test_factored_equals_dense(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((shape[0], 7)), rng.standard_normal((shape[1], 7)) + 1
    left[:, -1] *= 50  # a column like −log Z
    right[:, -1] = 1
    thin = Factored(right)
    for start in range(0, shape[0], 6):
        thin.update(left[start : start + 6])
    found, whole = thin.finish(), spectrum_of("dense", left @ right.T)
    assert found.shape == shape
    for name in ("values", "centered"):
        values, expected = getattr(found, name), getattr(whole, name)
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 * expected[0])
        # Not only against σ_1: each singular value that is not roundoff.
        kept = expected > 1e-10 * expected[0]
        np.testing.assert_allclose(values[kept], expected[kept], rtol=1e-12 * expected[0] / expected[kept].min())
    assert np.count_nonzero(found.values) <= 7


def test_factored_centring_leaves_no_roundoff_of_a_constant_column() -> None:
    """A Softmax's row-centred rank is determinate in float64 too: log Z is gone, not made small."""
    rng = np.random.default_rng(4)
    left, right = 100 * rng.standard_normal((50, 4)), rng.standard_normal((30, 4))
    right[:, -1] = 1
    method = Factored(right)
    method.update(left)
    found = method.finish().centered
    assert np.count_nonzero(found) == 3
    estimate = numerical_rank(found, shape=(50, 30), eps="float64")
    assert (estimate.value, estimate.determinate) == (3, True)
    constant = Factored(np.ones((30, 1)))
    constant.update(left[:, :1])
    assert not constant.finish().centered.any()


def test_gram_keeps_the_row_centred_accuracy() -> None:
    """Summing C's Gram matrix and not A's: all-ones, here 10⁶ times larger, must not blind it."""
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((50, 5)) @ rng.standard_normal((5, 20)) + 1e6
    found = spectrum_of("gram", matrix, 8)
    expected = np.linalg.svd(centred(matrix), compute_uv=False)
    np.testing.assert_allclose(found.centered[:5], expected[:5], rtol=1e-12)


@pytest.mark.parametrize("size", [40, 120])
def test_gram_resolves_what_it_says(built: Build, size: int) -> None:
    """No singular value above `RESOLUTION` is made up or lost: each is within it of the true one."""
    prescribed = np.concatenate([np.ones(size // 2), np.geomspace(1, 1e-6, size // 4)])
    found = spectrum_of("gram", built(prescribed, 2 * size, size))
    expected = np.sort(np.pad(prescribed, (0, size - prescribed.size)))[::-1]
    assert np.abs(found.values - expected).max() < RESOLUTION / 2
    assert RESOLUTION < 1e-6


def test_gram_refuses_what_it_cannot_resolve() -> None:
    check_resolution(RESOLUTION * 3.0, 3.0)
    check_resolution(0.0, 0.0)
    with pytest.raises(MatrixError, match=r"resolves σ/σ_1 down to 1\.2e-07, .* is 1\.1e-07: use --method tsqr"):
        check_resolution(RESOLUTION * 3.0 * 0.95, 3.0)


@pytest.mark.parametrize("method", METHODS)
def test_what_centring_projects_out_is_exactly_zero(method: str) -> None:
    matrix = np.random.default_rng(0).standard_normal((40, 9))
    found = spectrum_of(method, matrix)
    assert found.centered[8] == 0
    assert found.centered[7] > 0.1
    assert numerical_rank(found.centered, shape=(40, 9), eps="float64").determinate


@pytest.mark.parametrize("method", METHODS)
def test_states_of_two_halves_merge_to_the_whole(method: str) -> None:
    matrix = np.random.default_rng(0).standard_normal((45, 9))
    parts = [METHODS[method](9) for _ in range(3)]
    for part, rows in zip(parts, np.split(matrix, [7, 30]), strict=True):
        part.update(rows)
    for other in parts[1:]:
        parts[0].merge(other.state())
    merged, whole = parts[0].finish(), spectrum_of(method, matrix)
    assert merged.shape == whole.shape == (45, 9)
    np.testing.assert_allclose(merged.values, whole.values, rtol=1e-10)
    np.testing.assert_allclose(merged.centered, whole.centered, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", [Dense, Gram, WideGram, TSQR])
def test_a_state_from_one_arithmetic_is_another_ones_too(method: type[Gram]) -> None:
    """On the CPU ``syrk`` leaves a triangle empty; the first choice of routines must not stumble over it."""
    matrix = np.random.default_rng(0).standard_normal((45, 9)) + 2.0
    first, second = method(9), method(9, arithmetic=Accelerator(torch.device("cpu")))
    first.update(matrix)
    second.restore(first.state())
    found, expected = second.finish(), first.finish()
    assert found.driver in ("cpu syevd", "cpu svdvals")
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-10)
    np.testing.assert_allclose(found.centered, expected.centered, rtol=1e-10, atol=1e-12)
