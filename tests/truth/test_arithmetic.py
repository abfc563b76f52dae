"""Every method on matrices that cost careless arithmetic its digits: large means, odd scales, masks, huge rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipelines import assert_open, assert_true
from softmax_bottleneck import rank
from softmax_bottleneck.errors import ConfigurationError, MatrixError
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.spectrum import SpectrumSettings, build, decompose, matrix_spectrum

Matrix = NDArray[np.float64]
METHODS = ("dense", "gram", "tsqr", "sketch")


def product(rows: int, columns: int, d: int, *, seed: int = 0) -> Matrix:
    """A matrix of rank d whose rows sum to zero, as row-centring leaves one."""
    rng = np.random.default_rng(seed)
    right = rng.standard_normal((d, columns))
    centred = right - right.mean(1, keepdims=True)
    found: Matrix = rng.standard_normal((rows, d)) @ centred
    return found


@pytest.mark.parametrize("method", ["tsqr", "dense", "sketch"])
@pytest.mark.parametrize(("rows", "columns", "mean", "d"), [(300_000, 9, 1e3, 3), (500_000, 4, 1e4, 2)])
def test_large_means_cost_the_centred_rank_nothing(method: str, rows: int, columns: int, mean: float, d: int) -> None:
    report = rank(product(rows, columns, d) + mean, kind="matrix", method=method)
    assert_true(report.rank_centered, d)
    assert report.rank_centered.value == d
    assert_true(report.rank, d + 1)
    assert report.rank.low == report.rank.value == d + 1  # the means' own drop tells nothing beside that to zero


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0, 9).map(lambda power: 10.0**power),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([(60, 40), (40, 60), (500, 12)]),
    st.integers(0, 99),
)
def test_all_methods_agree_with_dense(mean: float, d: int, same: bool, shape: tuple[int, int], seed: int) -> None:
    """Means of up to 1e9 times the rest, the same in all rows or not: ranks, and singular values to their own error."""
    u = np.ones(shape[0]) if same else np.random.default_rng(seed).standard_normal(shape[0])
    matrix = product(*shape, d, seed=seed) + mean * u[:, None]
    ours = np.linalg.svd(matrix - matrix.mean(1, keepdims=True), compute_uv=False)[: d - 1]
    for method in METHODS:
        report = rank(matrix, kind="matrix", method=method, eps="float64" if method != "gram" else 1e-5)
        assert_true(report.rank_centered, d)
        if method != "gram":
            # No better than the entries themselves are rounded, and no worse.
            np.testing.assert_allclose(report.spectrum.centered[: d - 1], ours, rtol=1e-10, atol=1e-14 * mean * 25)


def test_nearly_uniform_log_probabilities() -> None:
    matrix = torch.from_numpy(1e-6 * product(200_000, 27, 10)).log_softmax(-1)
    for method in ("tsqr", "sketch"):
        report = rank(matrix, method=method)
        assert_true(report.rank_centered, 10)
        assert_true(report.rank, 11)


def test_a_sketch_proves_no_more_than_there_is() -> None:
    log_probs = torch.from_numpy(product(400, 200, 6)).log_softmax(-1).numpy()
    rng = np.random.default_rng(0)
    huge = 1e8 * rng.standard_normal((300, 1))
    almost_equal = rng.standard_normal((300, 1)) + 1e-9 * product(300, 100, 7)
    cases: list[tuple[Any, int, int, str]] = [
        (log_probs, 7, 6, "log-probs"),
        (1e6 + product(300, 100, 7), 8, 7, "matrix"),
        (huge + product(300, 100, 7), 8, 7, "matrix"),
        (almost_equal, 8, 7, "matrix"),
    ]
    for matrix, raw, centred, kind in cases:
        for width in (4, 9, 30):
            report = rank(matrix, kind=kind, method="sketch", width=width)
            assert_true(report.rank, raw)
            assert_true(report.rank_centered, centred)
        masked = np.concatenate([matrix, np.full((len(matrix), 1), -np.inf)], 1)
        report = rank(masked, kind=kind, method="sketch", width=30, inf="drop-columns")
        assert_true(report.rank_centered, centred)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-300, 1e-163, 1e-120, 1e120, 1e200])
def test_no_rank_depends_on_the_scale(method: str, scale: float) -> None:
    matrix = product(60, 40, 5)
    eps = 1e-5 if method == "gram" else None
    report = rank(scale * matrix, kind="matrix", method=method, eps=eps)
    assert_true(report.rank, 5)
    assert report.rank.value == 5
    assert report.rank.sigma_1 == pytest.approx(scale * np.linalg.norm(matrix, 2), rel=1e-12)
    assert (
        report.to_dict()["effective_rank"]
        == rank(matrix, kind="matrix", method=method, eps=eps).to_dict()["effective_rank"]
    )
    assert (
        matrix_spectrum(scale * matrix, SpectrumSettings(method=method if method != "sketch" else "auto")).values[0] > 0
    )


def test_what_underflowed_or_overflows_is_refused() -> None:
    with pytest.raises(MatrixError, match="the singular values are too large for float64: divide the matrix"):
        rank(product(60, 40, 5) * 1e306, kind="matrix")
    for tiny in (np.full((5, 3), 5e-320), np.full((5, 3), 1e-40, np.float32), np.full((5, 3), 3e-6, np.float16)):
        with pytest.raises(MatrixError, match=r"the largest number, .*, is subnormal in float\d\d: its digits"):
            rank(tiny, kind="matrix")
    with pytest.raises(MatrixError, match="too small for float64"):
        rank(np.full((5, 3), np.longdouble("1e-400")), kind="matrix")
    for method in ("gram", "dense", "tsqr"):
        with pytest.raises(MatrixError, match="too small for"):  # blocks, whose scale nobody has looked at
            decompose(iter([np.full((5, 3), 1e-200)]), build(SpectrumSettings(method=method), 3))


def test_eps_finer_than_the_arithmetic_is_refused() -> None:
    for method in ("auto", "dense", "tsqr", "sketch"):
        with pytest.raises(ConfigurationError, match=r"eps 1e-20 is finer than float64's roundoff"):
            rank(product(50, 30, 3), kind="matrix", method=method, eps=1e-20)


def test_eps_finer_than_the_numbers_widens_the_interval() -> None:
    matrix = product(300, 200, 5).astype(np.float32)
    report = rank(matrix, kind="matrix", eps="float64")
    assert report.rank.value > 5
    assert report.rank.low == 5
    assert not report.rank.determinate
    assert "eps 2.2e-16 is finer than the roundoff of the numbers (float32)" in report.details()


@pytest.mark.parametrize("kind", ["logits", "log-probs"])
@pytest.mark.parametrize("mask", [-1e9, float(np.finfo(np.float32).min), -2e4])
def test_a_masked_token_is_as_good_as_minus_infinity(mask: float, kind: str) -> None:
    logits = torch.from_numpy(product(200, 50, 4)).float()
    logits[:, 7] = mask
    matrix = logits if kind == "logits" else logits.log_softmax(-1)
    masked = r"holds -inf at row 0, column 7: .* \(numbers that lie 9,000 or more below the largest of every row"
    with pytest.raises(MatrixError, match=masked):
        rank(matrix, kind=kind)
    report = rank(matrix, kind=kind, inf="drop-columns")
    assert report.source["dropped_columns"] == 1
    assert (report.rank_centered.value, report.rank_centered.determinate) == (4, True)


def test_a_mask_in_a_models_bias_is_seen() -> None:
    logits = torch.from_numpy(product(64, 50, 4)).float()
    logits[:, 7] = -1e9
    with pytest.raises(MatrixError, match="holds -inf at row 0, column 7"):
        rank(lambda ids: logits[ids], data=[np.arange(64)[None]], vocab_size=50)
    with pytest.raises(MatrixError, match="holds -inf at row 0, column 7"):
        rank((block for block in logits.split(10)), kind="logits")


@pytest.mark.parametrize("kind", ["matrix", "logits"])
def test_energy_in_a_few_rows_or_columns_is_told(kind: str) -> None:
    rows = product(300, 200, 10).astype(np.float32)
    rows[17] *= 1e9
    report = rank(rows, kind=kind)
    assert "sits in 1 of 300 rows, the largest in row 17" in report.details()
    assert_open(report, 10, 10)
    columns = np.ascontiguousarray(rows.T)
    report = rank(columns, kind="matrix")
    assert "sits in 1 of 300 columns, the largest in column 17" in report.details()
    assert not report.rank.determinate


def test_logits_of_large_offsets_are_judged_by_their_own_roundoff() -> None:
    """The roundoff of the logits is that of 1e5: normalizing removes the offset, but not the roundoff."""
    offsets = 1e5 * np.random.default_rng(1).standard_normal((500, 1))
    logits = (product(500, 600, 10) + offsets).astype(np.float32)
    report = rank(logits, kind="logits")
    assert_true(report.rank, 11)
    assert_true(report.rank_centered, 10)
    # The most that rounding can add, computed from the logits.
    floor = 0.5 * 2.0**-23 * float(np.linalg.norm(logits.astype(np.float64)))
    for found in (report.rank, report.rank_centered):
        assert found.tolerance >= floor * (1 - 1e-6)
    assert_true(rank(logits, kind="logits", eps="float32").rank_centered, 10)


def test_spectra_end_where_the_method_sees_no_further() -> None:
    matrix = product(400, 100, 10).astype(np.float32)
    spectrum = matrix_spectrum(matrix, SpectrumSettings(method="gram"))
    rows = spectrum.curves()
    normalized, percent = rows.loc[rows["part"] == "raw", ["normalized", "percent"]].to_numpy()[::-1].T
    assert normalized[0] == pytest.approx(1.19e-7, rel=0.01)
    assert (normalized >= 1.19e-7).all()
    assert percent[0] == pytest.approx(90)  # 90 of the 100 values lie at or below it
    assert len(normalized) == 11
    exact = matrix_spectrum(matrix, SpectrumSettings(method="dense")).curves()
    assert exact["normalized"].min() < 1e-8


def test_a_store_keeps_masks_as_minus_infinity(tmp_path: Any) -> None:
    logits = torch.from_numpy(product(64, 50, 4)).float()
    logits[:, 7] = -1e9
    store = dump(open_source(logits, kind="logits"), tmp_path / "a.zarr")
    with pytest.raises(MatrixError, match="holds -inf at row 0, column 7"):
        rank(store)
    assert rank(store, inf="drop-columns").rank_centered.value == 4


def test_every_method_states_its_error() -> None:
    matrix = product(400, 100, 10)
    for method, share in (("dense", 2.0**-52), ("gram", 1.19e-7), ("tsqr", 2.0**-52), ("sketch", 2.0**-52)):
        report = rank(matrix, kind="matrix", method=method, eps=1e-4)
        found = report.to_dict()["certificate"]
        assert share * report.rank.sigma_1 <= 1.001 * found["error"] < 2e3 * share * report.rank.sigma_1
        assert f"the method's error in any σ is at most {found['error']:.2g}" in report.details()
        for estimate in (report.rank, report.rank_centered):
            assert estimate.tolerance >= found["error"]
