"""The piecewise linear increasing function against its integral, NumPy's interpolation, and finite differences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from softmax_bottleneck import heads
from softmax_bottleneck.heads import plif as plif_module
from softmax_bottleneck.heads.plif import PLIF

EPS = torch.finfo(torch.float64).eps
EPS32 = torch.finfo(torch.float32).eps


@pytest.fixture(params=["loops", "kernels"], autouse=True, scope="module")
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test by the compiled loops, and by the kernels that other devices and types take."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "kernels":
            patch.setattr(plif_module, "_has_loops", lambda inputs: False)
        yield


def _plif(*, knots: int = 12, interval: float = 1.5, seed: int = 0) -> PLIF:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return PLIF(knots=knots, interval=interval).double()


def _oracle(plif: PLIF, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """NumPy's interpolation between the knots, and the end slopes outside."""
    slopes = np.logaddexp(0, plif.v.detach().numpy())
    knots = np.linspace(-plif.interval, plif.interval, plif.knots + 1)
    values = np.concatenate([[-plif.interval], -plif.interval + np.cumsum(slopes * np.diff(knots))])
    inside = np.interp(x, knots, values)
    left, right = np.minimum(x - knots[0], 0) * slopes[0], np.maximum(x - knots[-1], 0) * slopes[-1]
    return inside + left + right


def _apply(plif: PLIF, x: Any) -> NDArray[np.float64]:
    result: NDArray[np.float64] = plif(torch.as_tensor(x)).detach().numpy()
    return result


@settings(max_examples=50, deadline=None)
@given(
    knots=st.integers(1, 50),
    interval=st.floats(0.1, 30),
    seed=st.integers(0, 100),
    points=st.lists(st.floats(-1e6, 1e6) | st.floats(-30, 30), min_size=1, max_size=30),
)
def test_it_interpolates_increases_and_goes_on_linearly(
    knots: int, interval: float, seed: int, points: list[float]
) -> None:
    plif, x = _plif(knots=knots, interval=interval, seed=seed), np.sort(points)
    size = max(1.0, np.abs(x).max(), interval) * plif.slopes().max().item()
    found = _apply(plif, x)
    np.testing.assert_allclose(found, _oracle(plif, x), rtol=0, atol=100 * EPS * size)
    assert (np.diff(found) >= plif.slopes().min().item() * np.diff(x) - 100 * EPS * size).all()


def test_sums_over_many_knots_are_exact_in_float32() -> None:
    """10⁵ slopes: the value at each knot is right to the last bits of a float32, whatever was summed before it."""
    plif = _plif(knots=100_000, interval=20.0).float()
    places = [1, 10, 1000, 33_333, 77_777, 99_999]
    slopes = plif.slopes().detach().tolist()
    truth = [-20 + 40 / 100_000 * math.fsum(slopes[:place]) for place in places]
    knots = torch.tensor([-20 + 40 * place / 100_000 for place in places], dtype=torch.float64)
    found = plif(knots.float()).detach().double()
    moved = (knots.float().double() - knots).abs() * max(slopes)  # a float32 cannot stand exactly on the knot
    errors = (found - torch.tensor(truth).double()).abs()
    assert (errors <= moved + 4 * EPS32 * 20 * max(slopes)).all()
    assert errors.max() < 1e-4


def test_slope_gradients_are_the_lengths_passed() -> None:
    """∂f(x)/∂s_j is how much of piece j lies below x: between 0 and Δ inside, unbounded in the end pieces."""
    plif = _plif(knots=4, interval=1.0)
    for x, passed in [
        (-3.0, [-2, 0, 0, 0]),
        (-0.75, [0.25, 0, 0, 0]),
        (0.25, [0.5, 0.5, 0.25, 0]),
        (2, [0.5, 0.5, 0.5, 1.5]),
    ]:
        (gradient,) = torch.autograd.grad(plif(torch.tensor([x]).double()).sum(), [plif.v])
        expected = torch.tensor(passed).double() * torch.sigmoid(plif.v.detach())
        torch.testing.assert_close(gradient, expected, rtol=10 * EPS, atol=10 * EPS)


def test_gradients_come_out_the_same_to_the_bit() -> None:
    """The histogram adds in one order: training must be repeatable, also where torch is told to be."""

    def gradients(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        head = heads.build("lms-plif", hidden_size=16, vocab_size=3000, knots=100_000)
        hidden, targets = torch.randn(200, 16, requires_grad=True), torch.randint(3000, (200,))
        loss = head.nll(hidden, targets)
        return [loss.detach(), *torch.autograd.grad(loss, [hidden, *head.parameters()])]

    torch.use_deterministic_algorithms(True)
    try:
        once, again, other = gradients(1), gradients(1), gradients(2)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, once, again))
    assert not any(map(torch.equal, once, other))


def test_infinite_inputs_add_nothing_to_the_slopes_and_nan_stays() -> None:
    """An infinite input is the logit of a masked token."""
    plif, plain = _plif(knots=6, interval=3.0), torch.linspace(-2, 2, 500).double()
    infinite = torch.cat([torch.tensor([math.inf, -math.inf]).double(), plain]).requires_grad_()
    upstream = torch.cat([torch.zeros(2), torch.ones(500)]).double()
    found = plif(infinite)
    assert found[:2].tolist() == [math.inf, -math.inf]
    assert torch.equal(found[2:], plif(plain))
    of_inputs, of_slopes = torch.autograd.grad(found, [infinite, plif.v], upstream)
    assert of_inputs.isfinite().all()
    (expected,) = torch.autograd.grad(plif(plain).sum(), [plif.v])
    torch.testing.assert_close(of_slopes, expected, rtol=1e-12, atol=0)
    found = plif(torch.tensor([math.nan, 0.0]).double())
    assert found.isnan().tolist() == [True, False]
    assert torch.autograd.grad(found.sum(), [plif.v])[0].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_narrow_type_costs_its_own_digits_alone(dtype: torch.dtype) -> None:
    """The piece is found in float32: 100,000 of them are more than either type can number."""
    plif = PLIF(noise=0.0).to(dtype)
    x = torch.linspace(-19, 19, 400).to(dtype)
    torch.testing.assert_close(plif(x), x, rtol=4 * torch.finfo(dtype).eps, atol=0.02)


def test_curve_and_slopes_by_numpy() -> None:
    """The corners lie on f, NumPy's interpolation between them is f, and f ends where the slopes sum to."""
    plif = _plif(knots=50, interval=3.0)
    curve, found, slopes = plif.function(), plif.slope_statistics(), np.logaddexp(0, plif.v.detach().numpy())
    assert curve.knots.shape == curve.values.shape == (51,)
    x = np.linspace(-3, 3, 333)
    expected = np.interp(x, curve.knots.numpy(), curve.values.numpy())
    np.testing.assert_allclose(_apply(plif, x), expected, rtol=0, atol=50 * EPS)
    assert curve.values[0] == -3.0
    assert curve.values[-1].item() == pytest.approx(-3 + 6 / 50 * slopes.sum(), rel=10 * EPS)
    assert (found.mean, found.std) == pytest.approx((slopes.mean(), slopes.std()), rel=1e-13)
    assert (found.min, found.max) == pytest.approx((slopes.min(), slopes.max()), rel=10 * EPS)
    assert _plif(knots=1).slope_statistics().std == 0.0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.floats(-1e3, 1e3)), max_size=200), st.integers(31, 40))
def test_sums_for_deterministic_cuda_are_bincount_and_cumsum(pairs: list[tuple[int, float]], bins: int) -> None:
    """What replaces the kernels that CUDA refuses in deterministic mode, against NumPy on the CPU."""
    index = np.array([place for place, _ in pairs], dtype=np.int64)
    weights = np.array([weight for _, weight in pairs], dtype=np.float64)
    scale, factors = np.abs(weights).sum() + 1, np.sin(np.arange(len(weights)))
    expected = np.bincount(index, weights, minlength=bins), np.bincount(index, weights * factors, minlength=bins)
    given = torch.from_numpy(index), torch.from_numpy(weights), torch.from_numpy(factors)
    for deterministic in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plif_module, "PIECE", 37)
            patch.setattr(plif_module, "_must_be_deterministic", lambda _, forced=deterministic: forced)
            found = plif_module.histograms(*given, bins)
            sums = plif_module.prefix_sums(given[1])
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-14 * (scale + len(pairs)))
        np.testing.assert_allclose(sums.numpy(), np.cumsum(weights), rtol=0, atol=1e-14 * scale)
