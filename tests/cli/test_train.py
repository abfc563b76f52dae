"""``bottleneck train``: what it starts from, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from softmax_bottleneck.cli import demo_runs
from softmax_bottleneck.language_models import checkpoint

from .conftest import Bottleneck


def test_finetune(world: Path, bottleneck: Bottleneck) -> None:
    settings = ["--set", "training.epochs=3", "--set", "training.optimizer.learning_rate=0.001"]
    shutil.copytree("demo/runs/mos", "mos")
    done = bottleneck("train", "--finetune", "mos", "--out", "finetuned", *settings)
    assert done.exit_code == 0, done.output
    config = checkpoint.load("finetuned").config
    assert config["initial"] == str(Path("mos").resolve())
    assert config["training"]["averaging"].items() >= {"start": "epoch", "epoch": 0}.items()
    *rows, _ = [json.loads(line) for line in Path("finetuned/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[0]["averaged_steps"] == rows[0]["step"]
    kept = next(row for row in reversed(rows) if row["best"])
    assert done.stdout.endswith(f", weights averaged over {kept['step']:,} steps\n")
    again = bottleneck("train", "--finetune", "mos", "--out", "finetuned", *settings)
    assert again.exit_code == 0
    assert again.stdout == done.stdout
    shutil.rmtree("mos")  # it has weights of its own by now
    later = bottleneck("train", "--finetune", "mos", "--out", "finetuned", *settings)
    assert later.stdout == done.stdout, later.output


def test_a_runs_own_configuration_is_a_configuration(world: Path, bottleneck: Bottleneck) -> None:
    done = bottleneck("train", "--config", "demo/runs/mos/config.json", "--out", "again")
    assert done.exit_code == 0, done.output
    assert Path("again/model.safetensors").read_bytes() == Path("demo/runs/mos/model.safetensors").read_bytes()
    printed = bottleneck("train", "--config", "demo/runs/mos/config.json", "--print-config")
    Path("printed.toml").write_text(printed.stdout, encoding="utf-8")
    again = bottleneck("train", "--config", "printed.toml", "--out", "again")
    assert again.stdout == done.stdout, again.output
    assert "\ncontext_dropout = 0.0\n" in printed.stdout


def test_what_training_takes_is_told_without_a_run(world: Path, bottleneck: Bottleneck) -> None:
    done = bottleneck("train", "--preset", "demo-mos", "--dry-run")
    assert done.exit_code == 0, done.output
    labels = [line.split()[0] for line in done.stdout.splitlines()]
    assert labels == ["parameters", "memory", "step", "epoch", "training"]


def test_presets_are_selected_and_fit_the_terminal(world: Path, bottleneck: Bottleneck) -> None:
    listed = bottleneck("presets", "ptb-small-mo?").stdout.splitlines()
    assert [line for line in listed if not line.startswith(" ")] == ["ptb-small-moc", "ptb-small-mos"]
    assert max(map(len, bottleneck("presets", "demo-*").stdout.splitlines())) <= 80
    one = bottleneck("presets", "demo-mos").stdout
    assert "command: bottleneck train --preset demo-mos --out runs/demo-mos" in one
    assert "components = 4" in one


def test_an_interruption_says_what_is_kept(
    world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_runs, "write_report", interrupted)
    monkeypatch.setattr("softmax_bottleneck.measure.computing.decompose", interrupted)
    trained = "interrupted; 1 of 4 models are trained and kept in new/runs, and the same command continues"
    for line, said in (
        ("demo --out new --set training.epochs=1", trained),
        ("rank demo/runs/mos", "interrupted; no singular values are kept"),
    ):
        done = bottleneck(*line.split())
        assert done.exit_code == 130
        assert done.stderr.splitlines()[-1].startswith(said)
