"""The monotonic network: increasing, an identity at the start, and small in memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads.lms_net import MonotonicNetwork


def _random(units: int = 5) -> MonotonicNetwork:
    network = MonotonicNetwork(hidden_units=units).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    return network


def test_it_is_the_sum_of_sigmoids() -> None:
    network, x = _random(), np.linspace(-30, 30, 101)
    u, v, b = (parameter.detach().numpy() for parameter in (network.u, network.v, network.b))
    expected = expit(np.logaddexp(0, u) * x[:, None] + b) @ np.logaddexp(0, v)
    found = network(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(("units", "interval"), [(10, 20.0), (100, 20.0), (30, 3.0)])
def test_it_starts_as_the_identity_up_to_a_constant(units: int, interval: float) -> None:
    network = MonotonicNetwork(hidden_units=units, interval=interval).double()
    spacing = 2 * interval / units
    inner = interval - 3 * spacing  # away from the ends, where sigmoids have neighbours on both sides
    x = torch.linspace(-inner, inner, 200, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(network(x).sum(), x)
    assert (slope - 1).abs().max() < 0.01


def test_it_increases_and_is_bounded() -> None:
    network = _random()
    values = network(torch.linspace(-8, 8, 300, dtype=torch.float64))
    assert (values.diff() > 0).all()
    total = torch.nn.functional.softplus(network.v).sum()
    assert network(torch.tensor([-1e6, 1e6]).double()).tolist() == pytest.approx([0, total.item()], abs=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [{"hidden_units": 0}, {"interval": 0.0}, {"interval": -1.0}, {"interval": math.nan}, {"interval": math.inf}],
)
def test_impossible_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"hidden_units must be at least 1, not 0|finite interval > 0, not"):
        MonotonicNetwork(**wrong)
