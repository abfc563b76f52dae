"""The benchmark of what comes after a model's forward pass, on a model small enough for seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from softmax_bottleneck.bench import bench_hugging_face, hugging_face
from softmax_bottleneck.bench.process import Measured


def test_a_tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case's work is done here, in this process; the help's example does it in processes of their own."""

    def measure(_: str, name: str, folder: str, contexts: str) -> Measured:
        return Measured(1.0, 1000, hugging_face._case(name, Path(folder), int(contexts))())

    monkeypatch.setattr(hugging_face, "in_its_own_process", measure)
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
