"""The piecewise linear increasing function against its integral, NumPy's interpolation, and finite differences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from softmax_bottleneck import heads
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads import plif as plif_module
from softmax_bottleneck.heads.plif import PLIF, UNIT_SLOPE


@pytest.fixture(params=["loops", "kernels"], autouse=True, scope="module")
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test by the compiled loops, and by the kernels that other devices and types take."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "kernels":
            patch.setattr(plif_module, "_has_loops", lambda inputs: False)
        yield


EPS = torch.finfo(torch.float64).eps
EPS32 = torch.finfo(torch.float32).eps


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
    points=st.lists(st.floats(-100, 100), min_size=1, max_size=30),
)
def test_it_interpolates_and_goes_on_linearly(knots: int, interval: float, seed: int, points: list[float]) -> None:
    plif, x = _plif(knots=knots, interval=interval, seed=seed), np.array(points)
    size = max(1.0, np.abs(x).max(), interval) * plif.slopes().max().item()
    np.testing.assert_allclose(_apply(plif, x), _oracle(plif, x), rtol=0, atol=100 * EPS * size)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 100), points=st.lists(st.floats(-3, 3), min_size=2, max_size=40))
def test_it_increases(seed: int, points: list[float]) -> None:
    plif, x = _plif(seed=seed), np.sort(points)
    gained, room = np.diff(_apply(plif, x)), plif.slopes().min().item() * np.diff(x)
    assert (gained >= room - 20 * EPS * 3).all()


def test_it_is_continuous_at_every_knot() -> None:
    plif = _plif(knots=1000, interval=20.0)
    knots = np.linspace(-20, 20, 1001)
    step = 1e-9
    jump = _apply(plif, knots + step) - _apply(plif, knots - step)
    assert jump.min() > 0
    assert jump.max() < 2.1 * step * plif.slopes().max().item()


def test_its_derivative_is_the_slope_of_the_piece() -> None:
    plif = _plif()
    middles = (torch.arange(12) + 0.5).double() * (3.0 / 12) - 1.5
    x = torch.cat([torch.tensor([-9.0]).double(), middles, torch.tensor([9.0]).double()]).requires_grad_()
    plif(x).sum().backward()
    softplus = torch.log1p(torch.exp(plif.v.detach()))
    torch.testing.assert_close(x.grad, torch.cat([softplus[:1], softplus, softplus[-1:]]), rtol=10 * EPS, atol=0)


def test_far_outside_it_is_a_straight_line() -> None:
    plif, far = _plif(), np.array([10.0, 1e3, 1e6])
    slopes = plif.slopes().detach().numpy()
    width = 2 * 1.5 / 12
    right = -1.5 + width * math.fsum(slopes) + slopes[-1] * (far - 1.5)
    np.testing.assert_allclose(_apply(plif, far), right, rtol=20 * EPS)
    np.testing.assert_allclose(_apply(plif, -far), -1.5 + slopes[0] * (-far + 1.5), rtol=20 * EPS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("knots", [1, 3, 100_000])
def test_unit_slopes_are_the_identity(knots: int, dtype: torch.dtype) -> None:
    plif = PLIF(knots=knots, interval=20.0, noise=0.0).to(torch.float64)
    torch.nn.init.constant_(plif.v, UNIT_SLOPE)
    x = torch.linspace(-60, 60, 1001, dtype=dtype)
    found = plif.to(dtype)(x)
    assert found.dtype == dtype
    # softplus(v) is 1 to an eps or two, and that error grows with the way from −T.
    assert (found - x).abs().max() <= 80 * 3 * torch.finfo(dtype).eps


def test_sums_over_many_knots_are_exact_in_float32() -> None:
    """10⁵ slopes: the value at each knot is right to the last bits of a float32, whatever was summed before it."""
    plif = _plif(knots=100_000, interval=20.0).float()
    places = [1, 10, 1000, 33_333, 77_777, 99_999]
    slopes = plif.slopes().detach().tolist()
    truth = [float(-20 + Fraction(40, 100_000) * sum(map(Fraction, slopes[:place]))) for place in places]
    knots = torch.tensor([-20 + 40 * place / 100_000 for place in places], dtype=torch.float64)
    found = plif(knots.float()).detach().double()
    moved = (knots.float().double() - knots).abs() * max(slopes)  # a float32 cannot stand exactly on the knot
    assert ((found - torch.tensor(truth).double()).abs() <= moved + 4 * EPS32 * 20 * max(slopes)).all()
    assert (found - torch.tensor(truth).double()).abs().max() < 1e-4


@pytest.mark.parametrize("through", ["log_prob", "nll"])
def test_slope_gradients_by_finite_differences(through: str) -> None:
    """f is linear in its slopes, so a difference of NumPy's interpolation over a long step is exact."""
    torch.manual_seed(0)
    head = heads.build("lms-plif", hidden_size=3, vocab_size=6, knots=8, interval=1.0).double()
    plif, hidden, targets = head.get_submodule("function"), torch.randn(5, 3).double(), torch.arange(5)
    assert isinstance(plif, PLIF)
    logits = (hidden @ head.weight.T + head.bias).detach().numpy()

    def loss(v: NDArray[np.float64]) -> float:
        moved = _plif(knots=8, interval=1.0)
        moved.v = torch.nn.Parameter(torch.from_numpy(v))
        scores = _oracle(moved, logits)
        return float(sum(np.logaddexp.reduce(row) - row[y] for row, y in zip(scores, targets.tolist(), strict=True)))

    if through == "nll":
        total = head.nll(hidden, targets, reduction="sum")
    else:
        total = -head.log_prob(hidden).gather(1, targets.unsqueeze(1)).sum()
    (found,) = torch.autograd.grad(total, [plif.v])
    v, step = plif.v.detach().numpy(), 1e-5
    expected = [(loss(v + step * e) - loss(v - step * e)) / (2 * step) for e in np.eye(8)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-9)


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


def test_gradcheck() -> None:
    plif = _plif()
    x = torch.linspace(-2.01, 2, 23, dtype=torch.float64, requires_grad=True)  # none within 10⁻³ of a knot
    assert torch.autograd.gradcheck(lambda x, _: plif(x), (x, plif.v))


def test_gradients_come_out_the_same_to_the_bit() -> None:
    """The histogram adds in one order: training must be repeatable."""

    def gradients(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        head = heads.build("lms-plif", hidden_size=16, vocab_size=3000, knots=100_000)
        hidden, targets = torch.randn(500, 16, requires_grad=True), torch.randint(3000, (500,))
        loss = head.nll(hidden, targets)
        return [loss.detach(), *torch.autograd.grad(loss, [hidden, *head.parameters()])]

    once, again, other = gradients(1), gradients(1), gradients(2)
    assert all(map(torch.equal, once, again))
    assert not any(map(torch.equal, once, other))


def test_non_finite_inputs_come_out_as_such() -> None:
    plif = _plif()
    found = plif(torch.tensor([math.nan, math.inf, -math.inf, 0.0]).double())
    assert found[0].isnan()
    assert found[1] == math.inf
    assert found[2] == -math.inf
    assert found[3].isfinite()


def test_gradient_of_a_frozen_function_is_not_made() -> None:
    plif, x = _plif(), torch.randn(4, dtype=torch.float64, requires_grad=True)
    plif.requires_grad_(False)
    plif(x).sum().backward()
    assert plif.v.grad is None
    assert x.grad is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"knots": 0},
        {"interval": 0.0},
        {"interval": -1.0},
        {"interval": math.nan},
        {"interval": math.inf},
        {"noise": -0.1},
        {"noise": math.nan},
    ],
)
def test_impossible_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"knots must be at least 1, not 0|finite interval > 0 and noise ≥ 0, not"
    ):
        PLIF(**wrong)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_narrow_type_costs_its_own_digits_alone(dtype: torch.dtype) -> None:
    """The piece is found in float32: 100,000 of them are more than either type can number."""
    plif = PLIF(noise=0.0).to(dtype)
    x = torch.linspace(-19, 19, 400).to(dtype)
    torch.testing.assert_close(plif(x), x, rtol=4 * torch.finfo(dtype).eps, atol=0.02)


def test_more_knots_than_a_float32_can_number() -> None:
    with pytest.raises(ConfigurationError, match=r"at most 2²⁴ knots, not 16777217"):
        PLIF(knots=(1 << 24) + 1)


def test_the_curve_is_the_function() -> None:
    """Its corners lie on f, NumPy's interpolation between them is f, and it ends where the slopes sum to."""
    plif = _plif(knots=50, interval=3.0)
    curve = plif.function()
    assert curve.knots.shape == curve.values.shape == (51,)
    assert curve.knots.dtype == curve.values.dtype == torch.float64
    np.testing.assert_allclose(_apply(plif, curve.knots), curve.values.numpy(), rtol=0, atol=50 * EPS)
    x = np.linspace(-3, 3, 333)
    np.testing.assert_allclose(
        _apply(plif, x), np.interp(x, curve.knots.numpy(), curve.values.numpy()), rtol=0, atol=50 * EPS
    )
    assert curve.values[0] == -3.0
    assert curve.values[-1].item() == pytest.approx(-3 + 6 / 50 * plif.slopes().sum().item(), rel=10 * EPS)


def test_slope_statistics_by_numpy() -> None:
    plif = _plif(knots=1000)
    slopes = np.logaddexp(0, plif.v.detach().numpy())
    found = plif.slope_statistics()
    assert (found.mean, found.std) == pytest.approx((slopes.mean(), slopes.std()), rel=1e-13)
    assert (found.min, found.max) == pytest.approx((slopes.min(), slopes.max()), rel=10 * EPS)
    assert _plif(knots=1).slope_statistics().std == 0.0


@pytest.mark.parametrize("name", ["lms-plif", "mos-plif"])
def test_heads_show_their_function(name: str) -> None:
    head: Any = heads.build(name, hidden_size=3, vocab_size=6, knots=40)
    assert isinstance(head.function, PLIF)
    assert head.function.function().knots.shape == (41,)


@pytest.mark.parametrize("name", ["lms-plif", "mos-plif"])
def test_frozen_slopes(name: str) -> None:
    head = heads.build(name, hidden_size=3, vocab_size=6, knots=40, learn_slopes=False)
    head.nll(torch.randn(4, 3), torch.randint(6, (4,))).backward()
    assert head.get_parameter("function.v").grad is None
    assert head.weight.grad is not None


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_learning_rate_of_slopes(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match="slope_learning_rate must be above 0, not"):
        heads.build("lms-plif", hidden_size=3, vocab_size=6, slope_learning_rate=wrong)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.floats(-1e3, 1e3)), max_size=200), st.integers(31, 40))
def test_sums_for_deterministic_cuda_are_bincount_and_cumsum(pairs: list[tuple[int, float]], bins: int) -> None:
    """What replaces the kernels that CUDA refuses in deterministic mode, against NumPy on the CPU."""
    index = np.array([place for place, _ in pairs], dtype=np.int64)
    weights = np.array([weight for _, weight in pairs], dtype=np.float64)
    scale = np.abs(weights).sum() + 1
    factors = np.sin(np.arange(len(weights)))
    expected = np.bincount(index, weights, minlength=bins), np.bincount(index, weights * factors, minlength=bins)
    given = torch.from_numpy(index), torch.from_numpy(weights), torch.from_numpy(factors)
    for deterministically in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plif_module, "PIECE", 37)
            patch.setattr(plif_module, "_must_be_deterministic", lambda _, forced=deterministically: forced)
            found = plif_module.histograms(*given, bins)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-14 * (scale + len(pairs)))
    sums = plif_module.prefix_sums_by_doubling(torch.from_numpy(weights))
    np.testing.assert_allclose(sums.numpy(), np.cumsum(weights), rtol=0, atol=1e-14 * scale)


def test_gradients_by_the_deterministic_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole function with them: as with the usual ones, and the same to the bit in every run."""

    def gradients() -> list[Tensor]:
        plif = _plif(knots=500, interval=20.0)
        x = torch.linspace(-30, 30, 4001, dtype=torch.float64, requires_grad=True)
        upstream = torch.sin(torch.arange(4001, dtype=torch.float64))
        values = plif(x)
        return [values.detach(), *torch.autograd.grad(values, [x, plif.v], upstream)]

    usual = gradients()
    monkeypatch.setattr(plif_module, "_must_be_deterministic", lambda tensor: True)
    once, again = gradients(), gradients()
    assert all(map(torch.equal, once, again))
    torch.testing.assert_close(once, usual, rtol=1e-12, atol=1e-12)


def test_deterministic_algorithms_are_no_obstacle_on_the_cpu() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        head = heads.build("lms-plif", hidden_size=3, vocab_size=6, knots=40)
        head.nll(torch.randn(4, 3), torch.randint(6, (4,))).backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert head.get_parameter("function.v").grad is not None
