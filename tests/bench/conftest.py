"""Cases of a benchmark, done in this process with times and memory that a test chooses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from softmax_bottleneck.bench.in_turn import Cases, Timings

Measure = Callable[[str, dict[str, Any]], tuple[float, int]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[set[str]]]:
    """A function that replaces `in_turn` in all benchmarks, and returns the names of each group of cases."""

    def replace(measure: Measure = lambda name, case: (1.0, 1000)) -> list[set[str]]:
        groups: list[set[str]] = []

        def in_turn(cases: Cases, **_: Any) -> Timings:
            groups.append({*cases})
            rows: Timings = {}
            for name, make in cases.items():
                seconds, memory = measure(name, make.keywords)
                rows[name] = {"case": make.keywords, "seconds": seconds, "runs": [seconds], "memory_bytes": memory}
                rows[name] |= make()()
            return rows

        for module in ("heads", "spectrum", "training"):
            monkeypatch.setattr(sys.modules[f"softmax_bottleneck.bench.{module}"], "in_turn", in_turn)
        return groups

    return replace
