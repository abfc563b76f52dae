"""The running average against the plain mean, the trigger of NT-ASGD as printed, and when a model is validated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from softmax_bottleneck.training.averaging import WeightAverage, is_non_monotone, starts_averaging, validated_after
from softmax_bottleneck.training.config import AveragingConfig


def _flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).clone()


def _steps(model: nn.Module, average: WeightAverage, count: int) -> list[torch.Tensor]:
    seen = []
    for _ in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update()
        seen.append(_flat(model))
    return seen


@pytest.mark.parametrize("count", [0, 1, 7])
def test_it_is_the_mean_since_the_start(count: int) -> None:
    """The weights come back to the last bit, also after an error; without a step there is nothing to swap in."""
    model = nn.Linear(3, 2).double()
    average = WeightAverage(model)
    _steps(model, average, 4)
    with average.swapped_in():
        assert average.steps is None
    average.start()
    seen = _steps(model, average, count)
    assert average.steps == count
    before = _flat(model)
    with average.swapped_in():
        np.testing.assert_allclose(_flat(model), np.mean([row.numpy() for row in seen or [before]], 0), rtol=1e-13)
    assert torch.equal(_flat(model), before)
    with pytest.raises(KeyError), average.swapped_in():
        raise KeyError
    assert torch.equal(_flat(model), before)


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


def _algorithm_1(losses: list[float], n: int) -> int | None:
    """Merity et al. 2018, algorithm 1: ``if t > n and v > min of logs[0 … t − n − 1]: T ← k``; ``logs[t] ← v``."""
    logs: list[float] = []
    for epoch, v in enumerate(losses, start=1):
        if len(logs) > n and v > min(logs[: len(logs) - n]):
            return epoch
        logs.append(v)
    return None


@given(losses=st.lists(st.integers(0, 9).map(float), max_size=30), n=st.integers(0, 8))
def test_it_fires_where_the_algorithm_does(losses: list[float], n: int) -> None:
    fired = [epoch for epoch in range(1, len(losses) + 1) if is_non_monotone(losses[:epoch], n)]
    assert (fired[0] if fired else None) == _algorithm_1(losses, n)


@pytest.mark.parametrize(
    ("settings", "losses", "expected"),
    [
        ({}, [3.0, 4.0], [False] * 4),
        ({"latest": 1}, [3.0, 4.0], [False] * 4),
        ({"start": "epoch"}, [], [True] * 4),
        ({"start": "epoch", "epoch": 2}, [1.0] * 9, [False, False, True, True]),
        ({"start": "non-monotone", "interval": 0}, [3.0, 2.0, 1.0], [False] * 4),
        ({"start": "non-monotone", "interval": 0}, [3.0, 4.0], [True] * 4),
        ({"start": "non-monotone", "interval": 0, "latest": 2}, [3.0, 2.0, 1.0], [False, False, True, True]),
    ],
)
def test_when_averaging_starts(settings: dict[str, object], losses: list[float], expected: list[bool]) -> None:
    config = AveragingConfig.model_validate(settings)
    assert [starts_averaging(config, losses, epochs=epochs) for epochs in range(4)] == expected


@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=40), validations=st.integers(1, 50))
def test_validations_lie_evenly_in_an_epoch(lengths: list[int], validations: int) -> None:
    positions = sorted(validated_after(lengths, validations))
    assert positions[-1] == sum(lengths)
    assert len(positions) == min(validations, len(lengths))
    ends = list(itertools.accumulate(lengths))
    steps = [ends.index(position) for position in positions]
    between = [later - earlier for earlier, later in itertools.pairwise([-1, *steps])]
    assert max(between) - min(between) <= 1
