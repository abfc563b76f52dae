"""The trigger of NT-ASGD as printed, and when a model is validated."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck.training.averaging import is_non_monotone, starts_averaging, validated_after
from softmax_bottleneck.training.config import AveragingConfig


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
