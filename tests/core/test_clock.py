"""The time of each part of a measurement, which no other part counts again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from softmax_bottleneck.core.clock import counting, each_spent, seconds_so_far, spent


def slow(seconds: float) -> Iterator[int]:
    for number in range(3):
        time.sleep(seconds)
        with spent("inside"):
            time.sleep(seconds)
        yield number


def test_a_part_within_another_counts_once() -> None:
    started = time.perf_counter()
    with counting():
        with spent("outside"):
            assert list(each_spent("values", slow(0.01))) == [0, 1, 2]
            time.sleep(0.01)
        found = seconds_so_far()
        with counting():
            assert seconds_so_far() == {}
            with pytest.raises(StopIteration), spent("failing"):
                next(iter(()))
            assert seconds_so_far()["failing"] > 0
        assert seconds_so_far() == found
    whole = time.perf_counter() - started
    assert min(found.values()) >= 0.01
    assert found["values"] >= 0.03
    assert sum(found.values()) == pytest.approx(whole, rel=0.2)
    assert seconds_so_far() == {}
