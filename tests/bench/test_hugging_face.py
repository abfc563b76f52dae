"""The benchmark of what comes after a model's forward pass, on a model small enough for seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from softmax_bottleneck.bench import bench_hugging_face, hugging_face
from softmax_bottleneck.bench.in_turn import Measured, Work


def test_a_tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case's work is done here, in this process; the help's example does it in processes of their own."""

    def measure(cases: Mapping[str, Callable[[], Work]], **more: Any) -> dict[str, Measured]:
        return {name: Measured([1.0], 1000, [make()()]) for name, make in cases.items()}

    monkeypatch.setattr(hugging_face, "in_turn", measure)
    found = bench_hugging_face(size="tiny", contexts=200)
    json.dumps(found, allow_nan=False)
    cases = found["cases"]
    forward, after = cases["forward pass"]["results"][0], cases["rank after it"]["results"][0]
    once = cases["forward pass, no overlap"]["results"][0]
    assert found["ratios"]["after / forward"] == after["seconds"] / forward["seconds"]
    assert found["ratios"]["after / forward, no overlap"] == after["seconds"] / once["seconds"]
    assert (forward["tokens"], once["tokens"]) == (32 * 12 + 24, 200)  # windows 16 apart, the last of 24; and 32 apart
    # A model fresh from its constructor has a LayerNorm without offset: d, not d + 1.
    assert (after["rank"], after["rank_centered"]) == (16, 15)
