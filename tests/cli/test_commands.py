"""What each command prints, writes and exits with, beside the golden records."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from softmax_bottleneck.figures import read
from softmax_bottleneck.figures.demo_table import cells

from .conftest import Bottleneck, values_of

RUN = "demo/runs/mos"
SHORT = ("--contexts", "60", "--set", "training.epochs=1")


def test_a_saved_spectrum_keeps_its_tolerance_and_bound(world: Path, bottleneck: Bottleneck) -> None:
    assert bottleneck("rank", "demo/runs/softmax", "--save-spectrum", "s.npz").exit_code == 0
    assert bottleneck("spectrum", "s.npz").stdout.split() == ["spectrum.png", "spectrum.csv"]
    drawn = bottleneck("spectrum", "s.npz", "demo/runs/softmax", "--out", "f.svg", "--style", "icml", "--log")
    assert drawn.exit_code == 0, drawn.stderr
    table = pd.read_csv("f.csv")
    saved, measured = (table[table["model"] == name].reset_index(drop=True) for name in ("s", "softmax"))
    pd.testing.assert_frame_equal(saved.drop(columns="model"), measured.drop(columns="model"))
    assert saved.groupby("part")["bound"].first().to_dict() == {"raw": 6, "row-centred": 5}


def test_demo_writes_what_it_says(world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `make demo`, the command lies in a virtual environment that is not activated."""
    monkeypatch.setattr(sys, "argv", [".venv/bin/bottleneck"])
    monkeypatch.setenv("PATH", "")
    shutil.copytree("demo/runs", "my demo/runs")
    done = bottleneck("demo", "--out", "my demo")
    assert done.exit_code == 0, done.stderr
    _, rows = cells(read(Path("my demo/reports")).frame)
    assert [row[0] for row in rows] == ["softmax", "moc", "mos", "lms-plif"]
    assert all(cell in done.stdout for row in rows for cell in row)
    assert max(map(len, done.stdout.splitlines())) <= 80
    # Two epochs on random words leave singular values near the tolerance: the interval may be shown.
    ranks = [[row[4], *(cell.rpartition("(")[2].rstrip(")") for cell in row[5:7])] for row in rows[:3]]
    assert ranks[:2] == [["6 (5)", "6", "5"]] * 2
    assert ranks[2][0] == "none"
    assert int(ranks[2][1]) > 6
    for name in ("cdf.png", "cdf.pdf", "cdf.csv", "reports/mos.json"):
        assert (Path("my demo") / name).stat().st_size > 0
    assert "\n  .venv/bin/bottleneck rank 'my demo'/runs/lms-plif\n" in done.stderr
    part = bottleneck("demo", "--models", "mos, softmax,", "--out", "my demo").stdout
    assert re.findall(r"6 \(5\)|none", part) == ["6 (5)", "none"]


def test_demo_of_seeds_with_adaptive_scores(world: Path, bottleneck: Bottleneck) -> None:
    done = bottleneck("demo", "--out", "two", "--models", "mos", "--seeds", "2", "--adaptive", *SHORT)
    assert done.exit_code == 0, done.stderr
    assert "± " in done.stdout
    assert sorted(path.stem for path in Path("two/reports").glob("*.json")) == ["mos", "mos-1"]
    report = json.loads(Path("two/reports/mos-1.json").read_text(encoding="utf-8"))
    assert (report["seed"], report["report"]["contexts"], "adaptive" in report) == (1, 60, False)
    assert report["machine"]["threads"] == 1  # more take processor time and save none
    report = json.loads(Path("two/reports/mos.json").read_text(encoding="utf-8"))
    # The same numbers as of the command; dynamic evaluation has one λ for all heads, that of MoS on Penn Treebank.
    for how, given in (("dynamic", ["--decay", "0.075"]), ("cache", [])):
        alone = values_of(bottleneck("eval", "two/runs/mos", f"--{how}", *given, "--json", "-"))
        assert report["adaptive"][how] == alone["perplexity"] != report["test_perplexity"]
        assert report["adaptive"]["settings"][how].items() <= alone["settings"].items()  # type: ignore[attr-defined]
    assert bottleneck("demo", "--reports", "two/reports").stdout == done.stdout


def test_runs_that_start_from_another(world: Path, bottleneck: Bottleneck) -> None:
    """Each run of the demo from the weights of its own name and seed."""
    preset = "ptb-small-nt-asgd-mos"
    listed = values_of(bottleneck("presets", preset, "--json", "-"))["presets"][0]["command"]
    assert listed.startswith(f"bottleneck train --preset {preset} --set initial=runs/ptb-small-awd-mos --out ")
    assert bottleneck("train", "--preset", preset, "--set", "initial=demo/runs/mos", "--out", "new").exit_code == 0
    for name in ("mos", "mos-1"):
        shutil.copytree("demo/runs/mos", f"first/{name}")
    only = ("--initial", "first", "--models", "mos", *SHORT)
    done = bottleneck("demo", "--out", "next", "--seeds", "2", *only)
    assert done.exit_code == 0, done.stderr
    config = json.loads(Path("next/runs/mos-1/config.json").read_text(encoding="utf-8"))
    assert config["initial"] == str(world / "first/mos-1")
    before, after = (Path(f"{folder}/mos/metrics.jsonl").read_text("utf-8") for folder in ("first", "next/runs"))
    best = min(json.loads(line)["valid_loss"] for line in before.splitlines()[:-1])
    assert json.loads(after.splitlines()[0])["valid_loss"] == pytest.approx(best, rel=1e-5)
    shutil.rmtree("first/mos")
    assert "run folder" in bottleneck("demo", "--out", "other", *only).stderr


def test_doctor_sees_processes_that_crowd_each_other(
    world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = "parallel measurements slow each other down"
    monkeypatch.setattr("softmax_bottleneck.core.machine.cores", lambda: 4)
    for load, threads, says in ((9.0, 4, True), (9.0, 2, False), (3.0, 4, False)):
        monkeypatch.setattr("psutil.getloadavg", lambda load=load: (load, 0.0, 0.0))
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        assert (advice in bottleneck("doctor").stdout) is says
