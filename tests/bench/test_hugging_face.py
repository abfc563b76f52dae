"""The benchmark of what comes after a model's forward pass, on a model small enough for seconds."""

from __future__ import annotations

import json

from softmax_bottleneck.bench import bench_hugging_face


def test_a_tiny_model() -> None:
    found = bench_hugging_face(size="tiny", contexts=200)
    json.dumps(found, allow_nan=False)
    cases = found["cases"]
    forward, after = cases["forward pass"]["result"], cases["rank after it"]["result"]
    assert found["ratios"]["after / forward"] == after["seconds"] / forward["seconds"]
    # A model fresh from its constructor has a LayerNorm without offset: d, not d + 1.
    assert (after["rank"], after["rank_centered"]) == (16, 15)
