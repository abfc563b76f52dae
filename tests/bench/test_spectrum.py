"""The benchmark runs, and its times are of work that was done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from softmax_bottleneck.bench import bench_spectrum, spectrum
from softmax_bottleneck.bench.in_turn import Measured, Work


def test_every_case_agrees_on_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case's work is done here, in this process; the help's example does it in processes of their own."""

    def measure(wanted: Mapping[str, Callable[[], Work]], **more: Any) -> dict[str, Measured]:
        found = {}
        for case, make in wanted.items():
            work, started = make(), time.perf_counter()
            results = [work() for _ in range(more["runs"])]
            found[case] = Measured([time.perf_counter() - started], 1000, results)
        return found

    monkeypatch.setattr(spectrum, "in_turn", measure)
    monkeypatch.setattr(spectrum, "PTB", (900, 450))
    found = bench_spectrum(shape=(600, 150), store=True)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    cases = found["cases"]
    largest = cases["numpy float64 svd"]["results"][0]
    assert cases["torch float32 svdvals"]["results"] == pytest.approx([largest] * 3, rel=1e-5)
    assert cases["gram float32"]["results"][0]["sigma_1"] == pytest.approx(largest, rel=1e-10)
    assert all(case["seconds"] > 0 for case in cases.values())
    assert cases["gram float32"]["results"][0]["certificate"] < 1e-10
    stored = cases["gram float32, PTB shape, from a store"]["results"][0]
    assert (stored["contexts"], stored["vocab"], stored["method"]) == (900, 450, "gram")
    ratio = cases["gram float32"]["seconds"] / cases["numpy float64 svd"]["seconds"]
    assert found["ratios"]["gram / numpy"] == pytest.approx(ratio)
    goals = {goal["what"]: goal for goal in found["asked"]}
    assert goals["gram / numpy"]["met"] == (ratio <= 0.3)
    assert goals["gram float32, PTB shape, from a store: GiB"]["met"]
