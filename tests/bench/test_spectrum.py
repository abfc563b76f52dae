"""The benchmark runs, and its times are of work that was done."""

from __future__ import annotations

import json
import time

import pytest

from softmax_bottleneck.bench import bench_spectrum, spectrum
from softmax_bottleneck.bench.process import Measured, in_its_own_process
from softmax_bottleneck.errors import BottleneckError


def test_every_case_agrees_on_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case's work is done here, in this process; the help's example does it in processes of their own."""

    def measure(_: str, name: str, rows: str, columns: str, *rest: str) -> Measured:
        work, started = spectrum._case(name, int(rows), int(columns), *rest), time.perf_counter()
        result = work()
        return Measured(time.perf_counter() - started, 1000, result)

    monkeypatch.setattr(spectrum, "in_its_own_process", measure)
    monkeypatch.setattr(spectrum, "PTB", (900, 450))
    found = bench_spectrum(shape=(600, 150), store=True)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    cases = found["cases"]
    largest = cases["numpy float64 svd"]["result"]
    assert cases["torch float32 svdvals"]["result"] == pytest.approx(largest, rel=1e-5)
    assert cases["gram float32"]["result"]["sigma_1"] == pytest.approx(largest, rel=1e-10)
    assert all(case["seconds"] > 0 for case in cases.values())
    assert cases["gram float32"]["result"]["certificate"] < 1e-10
    stored = cases["gram float32, PTB shape, from a store"]["result"]
    assert (stored["contexts"], stored["vocab"], stored["method"]) == (900, 450, "gram")
    ratio = cases["gram float32"]["seconds"] / cases["numpy float64 svd"]["seconds"]
    assert found["ratios"]["gram / numpy"] == pytest.approx(ratio)
    goals = {goal["what"]: goal for goal in found["asked"]}
    assert goals["gram / numpy"]["met"] == (ratio <= 0.3)
    assert goals["gram float32, PTB shape, from a store: GiB"]["met"]


def test_a_case_that_fails_says_why() -> None:
    with pytest.raises(BottleneckError, match=r"the benchmark gram x 5 cpu - failed: .*invalid literal"):
        in_its_own_process("softmax_bottleneck.bench.spectrum", "gram", "x", "5", "cpu", "-")


def test_a_method_is_timed_once_and_a_rate_by_its_quickest_run() -> None:
    runs = [Measured(4.0, 10, {"stream_seconds": 2.5}), Measured(3.0, 11, {"stream_seconds": 2.0})]
    assert spectrum._again(*runs) == Measured(4.0, 10, {"stream_seconds": 2.0})
    for rates in ((Measured(1.0, 5, 0.1), Measured(2.0, 6, 0.1)), (Measured(2.0, 6, 0.1), Measured(1.0, 5, 0.1))):
        assert spectrum._again(*rates) == Measured(1.0, 5, 0.1)
