"""The benchmark runs, and its cases agree on the matrix."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from softmax_bottleneck.bench import bench_spectrum, spectrum


def test_every_case_agrees_on_the_matrix(here: Callable[..., list[set[str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    here(lambda name, case: (0.25 if name == "gram float32" else 1.0, 1000))
    monkeypatch.setattr(spectrum, "PTB", (900, 450))
    report = bench_spectrum(shape=(600, 150), store=True)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    cases = report["cases"]
    largest = cases["numpy float64 svd"]["sigma_1"]
    assert cases["torch float32 svdvals"]["sigma_1"] == pytest.approx(largest, rel=1e-5)
    assert cases["gram float32"]["sigma_1"] == pytest.approx(largest, rel=1e-10)
    assert cases["gram float32"]["certificate"] < 1e-10
    stored = cases["gram float32, PTB shape, from a store"]
    assert (stored["contexts"], stored["vocab"], stored["method"]) == (900, 450, "gram")
    assert report["ratios"]["gram / numpy"] == 0.25
    assert report["ratios"]["gram memory / float64 matrix"] == 1000 / (8 * 600 * 150)
    assert report["rates"]["syrk"] == 600 * 150**2 / 1e9
    assert cases["whole command"]["inspected_seconds"] > 0
    goals = {goal["what"]: goal for goal in report["goals"]}
    assert goals["gram / numpy"]["met"]
    assert goals["gram float32, PTB shape, from a store: GiB"]["met"]
