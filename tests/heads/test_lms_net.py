"""The monotonic network: increasing, an identity at the start, and small in memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads.lms_net import MonotonicNetwork


def _random(units: int = 5) -> MonotonicNetwork:
    network = MonotonicNetwork(hidden_units=units).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    return network


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
