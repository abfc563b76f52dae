"""A sketch never claims more than it proved: against the whole spectrum, computed by LAPACK."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from softmax_bottleneck import rank
from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.spectrum import (
    RangeFinder,
    Spectrum,
    SpectrumSettings,
    decompose,
    matrix_spectrum,
    numerical_rank,
)

from .methods import EPS, Matrix, built, centred


def sketched(matrix: Matrix, width: int, *, rows: int = 17, seed: int = 0) -> Spectrum:
    blocks = [matrix[start : start + rows] for start in range(0, len(matrix), rows)]
    return decompose(blocks, RangeFinder(matrix.shape[1], width=width, seed=(seed,)))


@pytest.mark.parametrize("shape", [(80, 50), (40, 60)], ids=["tall", "wide"])
def test_a_rank_below_the_width_is_exact(shape: tuple[int, int]) -> None:
    matrix = built(np.geomspace(1.0, 1e-1, 9), *shape) - 1.0
    whole = sketched(matrix, 500)  # as wide as the matrix
    np.testing.assert_allclose(whole.values[:10], np.linalg.svd(matrix, compute_uv=False)[:10], rtol=1e-12)
    found = sketched(matrix, 15)
    exact = np.linalg.svd(matrix, compute_uv=False)
    np.testing.assert_allclose(found.values[:10], exact[:10], rtol=0, atol=1e-13 * exact[0])
    exact = np.linalg.svd(centred(matrix), compute_uv=False)
    np.testing.assert_allclose(found.centered[:9], exact[:9], rtol=0, atol=1e-13 * exact[0])
    assert found.residual < 1e-12
    for values, expected in ((found.values, 10), (found.centered, 9)):
        estimate = numerical_rank(values, shape=shape, eps="float32", residual=found.residual)
        assert (estimate.value, estimate.determinate, estimate.at_least) == (expected, True, False)


@example(width=8, decay=0.75, eps=0.005859375, seed=751, rows=1)  # σ_3 is 0.62 or 0.81, and the tolerance 0.67
@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 30),
    decay=st.floats(0.05, 0.95),
    eps=st.floats(1e-12, 1e-2),
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 70),
)
def test_it_never_claims_more_than_is_true(width: int, decay: float, eps: float, seed: int, rows: int) -> None:
    """Singular values are enclosed, the rank is never overstated, and "exact" is the true rank."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((size, 30)))[0] for size in (50, 40))
    matrix = (left * decay ** np.arange(30)) @ right.T + rng.standard_normal()
    found = sketched(matrix, width, rows=rows, seed=seed)
    exact = np.linalg.svd(matrix, compute_uv=False)
    slack = 50 * EPS * exact[0]
    known = exact[: len(found.values)]
    assert (found.values <= known + slack).all()
    assert (known <= np.sqrt(found.values**2 + found.residual**2) + slack).all()
    true = numerical_rank(exact, shape=(50, 40), eps=eps)
    stated = numerical_rank(found.values, shape=(50, 40), eps=eps, residual=found.residual)
    near = np.abs(exact - true.tolerance).min() <= slack  # a value on the tolerance itself may fall either way
    assert stated.value <= true.value + near
    assert stated.high >= true.high - near
    if not stated.at_least:
        assert abs(stated.value - true.value) <= near


def test_the_report_says_what_is_not_known() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((90, 60))
    report = rank(matrix, kind="matrix", method="sketch", width=20)
    values = report.to_dict()
    assert values["rank"]["at_least"]
    assert values["entropy_rank"] is None
    assert values["effective_rank"] == {"1e-3": None, "1e-4": None, "1e-5": None}
    assert values["certificate"]["residual"] == report.spectrum.residual > 1
    assert values["stable_rank"] == pytest.approx(np.linalg.norm(matrix) ** 2 / report.spectrum.values[0] ** 2)
    assert " rank  ≥ 21\n" in report.details()
    assert "but for a residual of" in report.details()
    low = rank(matrix[:, :4] @ rng.standard_normal((4, 60)), kind="matrix", method="sketch", width=20)
    assert (low.rank.value, low.rank.at_least) == (4, False)


def test_a_stream_that_comes_once_is_refused() -> None:
    matrix = np.eye(5)
    with pytest.raises(MatrixError, match="the sketch method needs the rows 2 times"):
        matrix_spectrum(iter([matrix]), SpectrumSettings(method="sketch"))
    assert matrix_spectrum([matrix], SpectrumSettings(method="sketch")).method == "sketch"
