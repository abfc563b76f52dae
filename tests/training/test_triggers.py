"""The trigger of NT-ASGD against the algorithm as it is printed, epoch after epoch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from softmax_bottleneck.training.config import AveragingConfig
from softmax_bottleneck.training.triggers import is_non_monotone, starts_averaging


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


def test_a_set_epoch() -> None:
    config = AveragingConfig(start="epoch", epoch=2)
    assert [starts_averaging(config, [1.0] * epochs) for epochs in range(4)] == [False, False, True, True]
    assert starts_averaging(AveragingConfig(start="epoch"), [])


def test_never() -> None:
    assert not starts_averaging(AveragingConfig(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert starts_averaging(AveragingConfig(start="non-monotone", interval=1), [1.0, 2.0, 3.0])
