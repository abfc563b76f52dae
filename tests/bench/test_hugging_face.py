"""The benchmark of what comes after a model's forward pass, on a model small enough for seconds."""

from __future__ import annotations

import json
from collections.abc import Callable

from softmax_bottleneck.bench import bench_hugging_face


def test_a_tiny_model(here: Callable[..., list[set[str]]]) -> None:
    here(lambda name, case: ({"forward pass": 4.0, "forward pass, no overlap": 2.0}.get(name, 1.0), 1000))
    report = bench_hugging_face(size="tiny", contexts=200)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    cases = report["cases"]
    assert report["ratios"] == {"after / forward": 0.25, "after / forward, no overlap": 0.5}
    assert cases["forward pass"]["tokens"] == 32 * 12 + 24  # windows 16 apart, the last of 24
    assert cases["forward pass, no overlap"]["tokens"] == 200
    # A model fresh from its constructor has a LayerNorm without offset: d, not d + 1.
    assert (cases["rank after it"]["rank"], cases["rank after it"]["rank_centered"]) == (16, 15)
