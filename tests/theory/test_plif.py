"""Theorem 7: errors against dense evaluation, the bounds, and the head's own PLIF."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from softmax_bottleneck.heads.plif import PLIF
from softmax_bottleneck.theory import plif_approximation

FUNCTIONS = {
    "tanh": (np.tanh, 1.0),
    "softplus": (lambda x: np.logaddexp(0, x), 1.0),
    "wave": (lambda x: x + 0.9 * np.sin(x), 1.9),
    "cube": (lambda x: x**3 + 0.1 * x, 75.1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("P", [1, 2, 7, 64, 1000])
def test_the_error_is_the_largest_and_below_both_bounds(name: str, P: int) -> None:
    h, R = FUNCTIONS[name]
    found = plif_approximation(h, 5.0, P, R=R)
    x = np.random.default_rng(0).uniform(-5, 5, 200_000)
    dense = float(abs(found(x) - h(x)).max())
    assert dense <= found.error * (1 + 1e-9) + 1e-14
    assert found.error <= dense * 1.01 + 1e-12
    assert found.error <= found.sharp_bound
    assert found.sharp_bound == found.bound / 8
    assert found.bound == 4 * R * 5.0 / P
    assert (found.slopes > 0).all()
    np.testing.assert_array_equal(found(found.knots), h(found.knots))


def test_a_staircase_comes_near_the_sharp_bound() -> None:
    """One smoothed step of slope R a piece, half the piece wide: the error is almost RΔ/4."""
    P, T, R = 8, 4.0, 1.0
    width = 2 * T / P

    def h(x: np.ndarray) -> np.ndarray:
        place = (x + T) / width
        piece = np.floor(place)
        return width * (0.5 * piece + np.clip(place - piece, 0, 0.5)) * R + 1e-9 * x

    found = plif_approximation(h, T, P, R=R + 1e-6)
    assert 0.999 * found.sharp_bound < found.error <= found.sharp_bound


def test_the_head_is_this_function() -> None:
    found = plif_approximation(np.sinh, 2.0, 50)
    assert found.assumed
    assert pytest.approx(np.cosh(2.0), rel=1e-3) == found.R
    plif = PLIF(knots=50, interval=2.0)
    with torch.no_grad():
        plif.v.copy_(torch.from_numpy(np.log(np.expm1(found.slopes))))
    x = torch.linspace(-2, 2, 333, dtype=torch.float64)
    offset = found(-2.0) + 2.0  # the head starts at f(−T) = −T
    np.testing.assert_allclose(plif.double()(x).detach().numpy() + offset, found(x.numpy()), atol=1e-6)
