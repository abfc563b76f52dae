"""The running average against the plain mean, and weights that come back to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from softmax_bottleneck.training.averaging import WeightAverage


def _steps(model: nn.Module, average: WeightAverage, count: int) -> list[torch.Tensor]:
    seen = []
    for _ in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update()
        seen.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    return seen


def _flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).clone()


def test_it_is_the_mean_since_the_start() -> None:
    model = nn.Linear(3, 2).double()
    average = WeightAverage(model)
    _steps(model, average, 4)
    average.start()
    seen = _steps(model, average, 7)
    assert average.steps == 7
    with average.swapped_in():
        np.testing.assert_allclose(_flat(model), np.mean([row.numpy() for row in seen], 0), rtol=1e-13)


def test_the_weights_come_back_as_they_were() -> None:
    model = nn.Linear(3, 2)
    average = WeightAverage(model)
    average.start()
    _steps(model, average, 3)
    before = _flat(model)
    with average.swapped_in():
        assert not torch.equal(_flat(model), before)
    assert torch.equal(_flat(model), before)
    with pytest.raises(KeyError), average.swapped_in():
        raise KeyError
    assert torch.equal(_flat(model), before)


@pytest.mark.parametrize("started", [False, True])
def test_without_a_step_there_is_nothing_to_swap_in(started: bool) -> None:
    model = nn.Linear(3, 2)
    average = WeightAverage(model)
    if started:
        average.start()
    before = _flat(model)
    with average.swapped_in():
        assert torch.equal(_flat(model), before)


def test_one_step_is_its_own_average() -> None:
    model = nn.Linear(3, 2)
    average = WeightAverage(model)
    average.start()
    (seen,) = _steps(model, average, 1)
    with average.swapped_in():
        assert torch.equal(_flat(model), seen)


def test_it_is_torchs_averaged_sgd() -> None:
    """`torch.optim.ASGD` with t0 = 0 and no decay, as AWD-LSTM runs it. Its second step
    still weighs 1, so that the first is lost, and it keeps its weights 1/n in float32."""
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    theirs.load_state_dict(ours.state_dict())
    sgd = torch.optim.SGD(ours.parameters(), lr=0.3, weight_decay=0.01)
    asgd = torch.optim.ASGD(theirs.parameters(), lr=0.3, t0=0, lambd=0.0, weight_decay=0.01)
    average = WeightAverage(ours)
    for step in range(6):
        if step == 1:
            average.start()
        x = torch.randn(4, 3, dtype=torch.float64)
        for model, optimizer in ((ours, sgd), (theirs, asgd)):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        average.update()
    with average.swapped_in():
        for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(own.detach(), asgd.state[other]["ax"], rtol=1e-5, atol=1e-5)
