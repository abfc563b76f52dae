"""What a measurement would take: the right method, the right order, and no work."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from softmax_bottleneck import rank
from softmax_bottleneck.core.machine import peak_memory_bytes
from softmax_bottleneck.errors import MatrixError
from softmax_bottleneck.measure import cost, estimate_cost
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.spectrum import Arithmetic


@pytest.fixture(autouse=True)
def _short_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "SECONDS_TO_CALIBRATE", 0.02)


@pytest.mark.parametrize(("head", "method"), [("softmax", "auto"), ("softmax", "dense"), ("mos", "auto")])
def test_the_method_is_the_one_that_rank_takes(runs: dict[str, Path], head: str, method: str) -> None:
    source = open_source(runs[head])
    found = estimate_cost(source, method=method)
    report = rank(source, method=method, eps=1e-3)
    assert found.method == report.spectrum.method
    assert (found.contexts, found.vocab) == source.shape


def test_more_costs_more(log_probs: Callable[..., NDArray[np.float64]]) -> None:
    small, tall = (estimate_cost(open_source(log_probs(T, 10)), method="tsqr") for T in (200, 20_000))
    assert tall.spectrum_seconds > 10 * small.spectrum_seconds
    assert "about" in str(tall)
    with pytest.raises(MatrixError, match="raise max_memory"):
        estimate_cost(open_source(log_probs(200, 100)), method="tsqr", max_memory=1000)


def test_the_method_is_that_of_the_roundoff_given() -> None:
    """gram resolves the tolerance of float32 numbers, and not that of float64 numbers."""
    source = open_source(np.zeros((30_000, 600), np.float32), kind="matrix")
    assert estimate_cost(source).method == "gram"
    assert estimate_cost(source, eps="float64").method == "tsqr"


@pytest.mark.parametrize("method", ["gram", "tsqr", "sketch"])
def test_an_estimate_allocates_no_matrix(method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the chosen method would hold is 3 GB and more: its size is computed, and nothing of it is made."""
    made: list[int] = []
    zeros = Arithmetic.zeros

    def counted(self: Arithmetic, *shape: int) -> torch.Tensor:
        made.append(8 * math.prod(shape))
        assert sum(made) < 50 << 20, "an estimate allocated a matrix"
        return zeros(self, *shape)

    monkeypatch.setattr(Arithmetic, "zeros", counted)
    monkeypatch.setattr("softmax_bottleneck.spectrum.choice.LARGEST_INDEX", 1 << 40)
    whole = np.memmap(tmp_path / "sparse", np.float32, "w+", shape=(100_000, 60_000))
    source = open_source(whole, kind="matrix")
    before = peak_memory_bytes()
    found = estimate_cost(source, method=method, eps="float32", max_memory=1 << 50, width=8192)
    assert (found.method, found.contexts, found.vocab) == (method, 100_000, 60_000)
    assert found.memory_bytes > 3e9
    assert peak_memory_bytes() - before < 50 << 20
