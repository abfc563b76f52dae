"""``bottleneck report``: from sources and from saved results, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck import rank

from .conftest import Bottleneck


def test_sources_are_measured_and_compared(world: Path, bottleneck: Bottleneck) -> None:
    np.save("m.npy", np.log(np.random.default_rng(0).dirichlet(np.ones(9), 40)))
    names = ["demo/runs/softmax", "demo/runs/mos", "m.npy"]
    options = ["--pairs", 50, "--examples", 1, "--reference", "demo/runs/mos"]
    done = bottleneck("report", *names, "--out", "page.html", *options)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "page.html\n"
    page = Path("page.html").read_text(encoding="utf-8")
    for text in ("<strong>Softmax</strong>", "<strong>MoS</strong>", "<strong>m</strong>", 'id="histogram"'):
        assert text in page
    assert "Softmax predicts better than MoS" in page
    assert '<h2 id="distance">Distance from the reference</h2>' in page
    compared = json.loads(bottleneck("compare", "demo/runs/mos", "demo/runs/softmax", "--json", "-").stdout)
    assert f"{100 * compared['statistics']['top_5']['value']:.0f}" in page.partition("top-5 overlap")[2][:60]
    assert (
        "no comparison: the sources have different numbers of contexts: demo/runs/mos has 179, m.npy has 40"
        in done.stderr
    )
    assert "compare the first of each: give --contexts 40" in done.stderr
    assert "compare the first of each: give --contexts 40</li>" in page
    assert f"<span>{rank('demo/runs/mos').verdict}.</span>" in page
    perplexity = bottleneck("eval", "demo/runs/mos", "--json", "-").stdout
    assert f">{float(re.findall(r'perplexity.: ([0-9.]+)', perplexity)[0]):.2f}<" in page


def test_a_matrix_of_any_kind_has_no_divergence(world: Path, bottleneck: Bottleneck) -> None:
    np.save("m.npy", np.ones((5, 4)))
    done = bottleneck("report", "m.npy", "--kind", "matrix", "--out", "page.html")
    assert done.stderr == (
        "no pairwise KL divergence: m.npy is a matrix of any kind: give log-probabilities or logits\n"
    )


def test_the_device_is_that_of_the_decomposition(
    world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = []

    def decomposed(*arguments: Any, device: str = "auto", **options: Any) -> Any:
        requested.append(device)
        return rank(*arguments, device=device, **options)

    for module in ("softmax_bottleneck.measure", "softmax_bottleneck.report.measured"):
        monkeypatch.setattr(f"{module}.rank", decomposed)
    for command, out in (("report", "page.html"), ("spectrum", "figure.svg")):
        done = bottleneck(command, "demo/runs/moc", "--contexts", 50, "--device", "cpu", "--out", out)
        assert done.exit_code == 0, done.stderr
    assert requested == ["cpu", "cpu"]


def test_saved_results_are_not_measured_again(world: Path, bottleneck: Bottleneck) -> None:
    """Several results in one file and checkpoints are models too."""
    saved = ["--json", "a.json", "--save-spectrum", "a.npz"]
    assert bottleneck("rank", "demo/runs/moc", *saved).exit_code == 0
    assert bottleneck("kld", "demo/runs/moc", "--pairs", 40, "--json", "pairs.json").exit_code == 0
    assert bottleneck("rank", "ours=demo/runs/mos", "other=demo/runs/moc", "--json", "both.json").exit_code == 0
    assert bottleneck("rank", "demo/runs/mos", "--json", "mos.epoch-1.json").exit_code == 0
    shutil.rmtree("demo/runs/moc")
    files = ["a.json", "pairs.json", "both.json", "mos.epoch-1.json", "demo/reports"]
    done = bottleneck("report", *files, "--out", "page.html")
    assert done.exit_code == 0, done.stderr
    page = Path("page.html").read_text(encoding="utf-8")
    assert (page.count("<strong>"), page.count("<strong>ours")) == (6, 1)
    assert 'id="histogram"' in page
    missing = "no singular values of both.json: they are not in both.npz beside it; 'bottleneck rank --json"
    assert done.stderr.count(missing) == 1
    both = ["ours=demo/runs/mos", "demo/runs/softmax", "--json", "both.json", "--save-spectrum", "both.npz"]
    assert bottleneck("rank", *both).exit_code == 0
    assert bottleneck("report", "both.npz", "first=a.json", "--out", "page.html").stderr == ""
    assert "<strong>first" in Path("page.html").read_text(encoding="utf-8")
    assert bottleneck("report", "two=both.npz", "--out", "page.html").stderr == ""
    assert "<strong>two/ours" in Path("page.html").read_text(encoding="utf-8")
    np.savez("matrix.npz", A=np.random.default_rng(0).standard_normal((9, 5)))
    assert bottleneck("spectrum", "matrix.npz", "--kind", "matrix", "--out", "m.png").exit_code == 0
    assert bottleneck("spectrum", "both.npz").exit_code == 0
    assert {line.partition(",")[0] for line in Path("spectrum.csv").read_text().split()[1:]} == {
        "both/ours",
        "both/softmax",
    }
