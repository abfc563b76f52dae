"""The check of a device, and the benchmarks that run on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from softmax_bottleneck import heads
from softmax_bottleneck.bench import gpu
from softmax_bottleneck.bench.gpu import bench_gpu, check_device
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads import Softmax


def test_the_check_passes_on_the_cpu_and_sees_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 the loss is right and a ten-thousandth of the gradient is missing."""
    report = check_device("cpu")
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert all(goal["met"] for goal in report["goals"])
    errors = [case for case in report["cases"].values() if "cpu" in case]
    assert len(errors) == len(heads.REGISTRY)
    assert all(0 < one["device"] <= one["cpu"] for one in errors)
    right = Softmax.nll

    def wrong(self: Softmax, hidden: torch.Tensor, targets: torch.Tensor, **more: Any) -> torch.Tensor:
        loss = right(self, hidden, targets, **more)
        return loss if loss.dtype == torch.float64 else loss.detach() * 1e-4 + loss * (1 - 1e-4)

    monkeypatch.setattr(Softmax, "nll", wrong)
    monkeypatch.setattr(heads, "REGISTRY", {"softmax": Softmax})
    assert check_device("cpu")["cases"]["softmax"]["device"] > 1e-5


def test_every_bench_runs_on_the_device_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="unknown stage 'test'; the stages are device, heads"):
        bench_gpu(tmp_path, device="cpu", only=("test",))
    calls: list[tuple[str, str]] = []
    for name in ("heads", "spectrum", "training"):

        def bench(*, device: str, name: str = name, **_: Any) -> dict[str, str]:
            calls.append((name, device))
            return {"bench": name}

        monkeypatch.setattr(gpu, f"bench_{name}", bench)
    for _ in range(2):
        bench_gpu(tmp_path, device="cuda:1", only=("heads", "spectrum", "training"))
    assert calls == [("heads", "cuda:1"), ("spectrum", "cuda:1"), ("training", "cuda:1")]
    reports = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "bench").iterdir()}
    assert reports == {f"{name}.json": {"bench": name} for name, _ in calls}
