"""The benchmark of what comes after a model's forward pass, on a model small enough for seconds."""

from __future__ import annotations

import json

from softmax_bottleneck.bench import bench_hugging_face


def test_a_tiny_model() -> None:
    found = bench_hugging_face(size="tiny", contexts=200)
    json.dumps(found, allow_nan=False)
    cases = found["cases"]
    forward, after = cases["forward pass"]["result"], cases["rank after it"]["result"]
    once = cases["forward pass, no overlap"]["result"]
    assert found["ratios"]["after / forward"] == after["seconds"] / forward["seconds"]
    assert found["ratios"]["after / forward, no overlap"] == after["seconds"] / once["seconds"]
    assert (forward["tokens"], once["tokens"]) == (32 * 12 + 24, 200)  # windows 16 apart, the last of 24; and 32 apart
    # A model fresh from its constructor has a LayerNorm without offset: d, not d + 1.
    assert (after["rank"], after["rank_centered"]) == (16, 15)
