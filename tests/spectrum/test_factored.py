"""Thin factors against LAPACK on their product."""

from __future__ import annotations

import numpy as np
import pytest

from softmax_bottleneck.spectrum import Factored, decompose, numerical_rank

from .methods import spectrum_of

SHAPES = {"tall": (40, 30), "wide": (12, 30), "T < r": (5, 30), "M < r": (40, 4), "Y in blocks": (20, 5000)}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_factored_equals_dense(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softmax_bottleneck.spectrum.factored.AT_ONCE", 1)  # 2,048 rows of Y are a block
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((shape[0], 7)), rng.standard_normal((shape[1], 7)) + 1
    left[:, -1] *= 50  # a column like −log Z
    right[:, -1] = 1
    thin = Factored(right)
    thin.block = (6, "C")
    found, whole = decompose([left], thin), spectrum_of("dense", left @ right.T)
    assert found.shape == shape
    for name in ("values", "centered"):
        values, expected = getattr(found, name), getattr(whole, name)
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 * expected[0])
        # Not only against σ_1: each singular value that is not roundoff.
        kept = expected > 1e-10 * expected[0]
        np.testing.assert_allclose(values[kept], expected[kept], rtol=1e-12 * expected[0] / expected[kept].min())
    assert np.count_nonzero(found.values) <= 7


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e9, 1e13, np.inf])
def test_products_and_householder_give_the_same_triangle(condition: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """CholeskyQR2 squares the condition number of Y, so beyond about 10⁷ Householder's QR takes over."""
    monkeypatch.setattr("softmax_bottleneck.spectrum.factored.AT_ONCE", 1)
    rng = np.random.default_rng(2)
    orthonormal = np.linalg.qr(rng.standard_normal((6000, 9)))[0]
    mixed = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    right = orthonormal * np.geomspace(1, 1 / condition, 9) @ mixed if condition < np.inf else orthonormal[:, [0] * 9]
    right += 1 / min(condition, 100)
    thin = Factored(right)
    if condition <= 1e6:
        monkeypatch.delattr("softmax_bottleneck.spectrum.factored.triangle_of_blocks")
    found = decompose([np.eye(9)], thin)
    for values, matrix in ((found.values, right.T), (found.centered, right.T - right.T.mean(1, keepdims=True))):
        expected = np.linalg.svd(matrix, compute_uv=False)
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-14 * np.linalg.norm(right))


def test_factored_centring_leaves_no_roundoff_of_a_constant_column() -> None:
    """A Softmax's row-centred rank is determinate in float64 too: log Z is gone, not made small."""
    rng = np.random.default_rng(4)
    left, right = 100 * rng.standard_normal((50, 4)), rng.standard_normal((30, 4))
    right[:, -1] = 1
    found = decompose([left], Factored(right)).centered
    assert np.count_nonzero(found) == 3
    estimate = numerical_rank(found, shape=(50, 30), eps="float64")
    assert (estimate.value, estimate.determinate) == (3, True)
    assert not decompose([left[:, :1]], Factored(np.ones((30, 1)))).centered.any()
