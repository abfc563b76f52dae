"""The benches of a lent GPU, rehearsed on the CPU with tiny models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from softmax_bottleneck import heads
from softmax_bottleneck.bench import gpu
from softmax_bottleneck.bench.demo import Study
from softmax_bottleneck.bench.gpu import bench_gpu, check_device
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.heads import Softmax
from softmax_bottleneck.measure import rank
from softmax_bottleneck.training import PRESETS


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of thirty words, on which the presets of ``ptb-fast`` train."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, lines in (("train", 300), ("valid", 20), ("test", 20)):
        rows = [" ".join(f"w{word}" for word in generator.integers(30, size=8)) for _ in range(lines)]
        (folder / f"{split}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for name in ("ptb-fast-softmax", "ptb-fast-mos"):
        monkeypatch.setitem(PRESETS, name, replace(PRESETS[name], family="rehearsal", corpus=str(folder)))
    return folder


STUDY = Study(family="rehearsal")
TINY: dict[str, Any] = {"hours": 1e-9, "device": "cpu", "only": ("models",), "shrink": 50}


def test_a_call_that_is_stopped_goes_on(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "gpu"

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gpu.demo, "measure", stopped)
        with pytest.raises(KeyboardInterrupt):
            bench_gpu(out, STUDY, **TINY)
    before = {file: (out / file).read_bytes() for file in ("runs/softmax/model.safetensors", "plan.json")}
    table = bench_gpu(out, STUDY, **TINY)
    assert {file: (out / file).read_bytes() for file in before} == before
    assert json.loads(before["plan.json"])["epochs"] == 1
    for name in ("softmax", "mos"):
        assert name in table
        report = json.loads((out / "reports" / f"{name}.json").read_text(encoding="utf-8"))
        assert report["report"]["rank"]["value"] == rank(out / "runs" / name).rank.value
    assert (out / "cdf.csv").read_text(encoding="utf-8").startswith("model,")
    seconds = json.loads((out / "seconds.json").read_text(encoding="utf-8"))
    assert set(seconds) == {"plan", "models"}
    assert min(seconds.values()) > 0
    times = {path: path.stat().st_mtime_ns for path in out.glob("r*/*.json")}
    assert bench_gpu(out, STUDY, **TINY) == table
    assert {path: path.stat().st_mtime_ns for path in out.glob("r*/*.json")} == times


def test_the_hours_left_decide_the_epochs(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 700 s, 600 s are left; 85 % of them are for training, and an epoch of both models takes 30 s."""
    seconds, epochs = iter([10.0, 20.0]), []
    monkeypatch.setattr(gpu, "training_cost", lambda *_, **__: SimpleNamespace(seconds_per_epoch=next(seconds)))
    monkeypatch.setattr(
        gpu.demo, "run", lambda *_, configurations, **__: epochs.extend(c.training.epochs for _, c in configurations)
    )
    (tmp_path / "seconds.json").write_text('{"heads": 100.0}', encoding="utf-8")
    bench_gpu(tmp_path, STUDY, **{**TINY, "hours": 700 / 3600})
    assert epochs == [16, 16]  # the plan itself takes no second


def test_the_check_passes_on_the_cpu_and_sees_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 the loss is right and a ten-thousandth of the gradient is missing."""
    report = check_device("cpu")
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert all(goal["met"] for goal in report["goals"])
    assert all(one["device"] == one["cpu"] > 0 for one in report["heads"].values())
    right = Softmax.nll

    def wrong(self: Softmax, hidden: torch.Tensor, targets: torch.Tensor, **more: Any) -> torch.Tensor:
        loss = right(self, hidden, targets, **more)
        return loss if loss.dtype == torch.float64 else loss.detach() * 1e-4 + loss * (1 - 1e-4)

    monkeypatch.setattr(Softmax, "nll", wrong)
    monkeypatch.setattr(heads, "REGISTRY", {"softmax": Softmax})
    assert check_device("cpu")["heads"]["softmax"]["device"] > 1e-5


def test_every_bench_runs_on_the_device_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    for name in ("heads", "spectrum", "training"):

        def bench(*, device: str, name: str = name, **_: Any) -> dict[str, str]:
            calls.append((name, device))
            return {"bench": name}

        monkeypatch.setattr(gpu, f"bench_{name}", bench)
    for _ in range(2):
        assert not bench_gpu(tmp_path, STUDY, hours=1, device="cuda:1", only=("heads", "spectrum", "training"))
    assert calls == [("heads", "cuda:1"), ("spectrum", "cuda:1"), ("training", "cuda:1")]
    reports = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "bench").iterdir()}
    assert reports == {f"{name}.json": {"bench": name} for name, _ in calls}


def test_unknown_stages_and_families(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown stage 'test'"):
        bench_gpu(tmp_path, STUDY, hours=1, device="cpu", only=("test",))
    with pytest.raises(ConfigurationError, match="unknown family of presets 'no'"):
        bench_gpu(tmp_path, Study(family="no"), **TINY)
