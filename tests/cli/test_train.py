"""``bottleneck train``: what it starts from, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from softmax_bottleneck import checkpoint

from .conftest import Bottleneck


def test_finetune(world: Path, bottleneck: Bottleneck) -> None:
    settings = ["--set", "training.epochs=3", "--set", "training.optimizer.learning_rate=0.001"]
    shutil.copytree("demo/runs/mos", "mos")
    done = bottleneck("train", "--finetune", "mos", "--out", "finetuned", *settings)
    assert done.exit_code == 0, done.output
    config = checkpoint.load("finetuned").config
    assert config["initial"] == str(Path("mos").resolve())
    assert config["training"]["averaging"].items() >= {"start": "epoch", "epoch": 0}.items()
    row = json.loads(Path("finetuned/metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert row["averaged_steps"] == row["step"]
    again = bottleneck("train", "--finetune", "mos", "--out", "finetuned", *settings)
    assert again.exit_code == 0
    assert again.stdout == done.stdout
    shutil.rmtree("mos")  # it has weights of its own by now
    later = bottleneck("train", "--finetune", "mos", "--out", "finetuned", *settings)
    assert later.stdout == done.stdout, later.output


def test_a_run_starts_from_one_thing(world: Path, bottleneck: Bottleneck) -> None:
    for options in ((), ("--preset", "demo-mos", "--finetune", "demo/runs/mos")):
        done = bottleneck("train", *options, "--out", "run")
        assert done.exit_code == 2
        assert "--finetune RUN" in done.output
    done = bottleneck("train", "--finetune", "nothing", "--out", "run")
    assert done.exit_code == 1
    assert "there is no run folder nothing" in done.stderr


def test_a_copy_is_a_run(world: Path, bottleneck: Bottleneck) -> None:
    done = bottleneck("copy", "demo/runs/mos", "--out", "small", "--dtype", "float32")
    assert done.exit_code == 0, done.output
    assert "small: " in done.stdout
    texts = [bottleneck("eval", run).stdout for run in ("small", "demo/runs/mos")]
    assert texts[0] == texts[1] != ""
