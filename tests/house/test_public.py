"""The public face: what a fresh Python reaches, what editors show, and what a strict type checker accepts."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import softmax_bottleneck as sb
from softmax_bottleneck.core.machine import parse_size
from softmax_bottleneck.core.options import RANK
from softmax_bottleneck.results.base import Result

ROOT = Path(__file__).parents[2]

USER = """
from pathlib import Path

import numpy as np
import torch
from torch import nn

import softmax_bottleneck as sb
from softmax_bottleneck.integrations import TransformersCallback, model_statistics, training_statistics
from softmax_bottleneck.training import PRESETS

source: sb.Source = sb.open("runs/mos", contexts=5000, dtype="float64")
report: sb.RankReport = sb.rank(source, max_memory="1GiB", width=100, estimate_hidden_size=True)
value: int = report.rank.value
score: float = sb.perplexity("runs/mos", how="cache", settings={"window": 100}, split="valid").perplexity
divergence: float = sb.kld("runs/mos", pairs=1000, seed=1, split="valid").kld
store: Path = sb.dump("runs/mos", "mos.zarr", device="cpu")
spectrum: sb.Spectrum = sb.singular_values(np.eye(3), method="dense")
rank: int = sb.numerical_rank(spectrum.values, shape=(3, 3), eps="float32").value
sb.rank(nn.Linear(3, 4), hidden=torch.randn(5, 3), targets=[1, 2, 3, 0, 1])
sb.gradient("runs/mos", sample=3).to_frame()
sb.compare("runs/mos", "runs/softmax", examples=3, hugging_face=sb.HuggingFaceOptions(stride=3)).to_dict()
sb.rank("gpt2", context_length=64, stride=32, bos="off")
head: sb.heads.Head = sb.heads.MoS(hidden_size=5, vocab_size=7, components=2)
loss: torch.Tensor = head.nll(torch.randn(2, 5), torch.tensor([1, 2]))
table = sb.frame([report, sb.kld(source)])
sb.head("gpt2", revision="main").rows_found.never_trained
sb.head_statistics(nn.Linear(3, 4).weight).weight.energy(0.9)
numbers: dict[str, float] = training_statistics(head, torch.randn(9, 5))
run = sb.checkpoint.load(Path("runs/mos"))
config = PRESETS["demo-mos"].config.replace(training={"epochs": 1})
result: sb.Result = report
reports: sb.RankReports = sb.rank(["MoS=runs/mos", "runs/softmax"], device="cpu")
latex: str = reports.to_latex(columns=["d", "rank"])
"""
WRONG = 'import softmax_bottleneck as sb\nsb.rank("runs/mos", context=3)\nsb.kld("runs/mos", pears=3)\n'


def test_a_fresh_python_reaches_everything_and_shows_nothing_else() -> None:
    code = "import softmax_bottleneck as sb\nfor name in dir(sb): getattr(sb, name)\nprint(*dir(sb))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(sb.__all__)


def test_a_strict_type_checker_accepts_users_code(tmp_path: Path) -> None:
    """It runs as `make types` does, on the same tree and cache, which spare it a minute.

    Errors in the package itself are left to `make types`: older numpy and matplotlib have other annotations.
    """
    subprocess.run(["make", "--silent", "build/types"], cwd=ROOT, check=True)
    users, wrong = tmp_path / "user.py", tmp_path / "wrong.py"
    users.write_text(USER, encoding="utf-8")
    wrong.write_text(WRONG, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(users), str(wrong)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "build/types"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    ours = ("build/types", "bottleneck/", "cli/", "figures/")
    errors = [line for line in done.stdout.splitlines() if ": error: " in line and not line.startswith(ours)]
    assert {Path(error.partition(":")[0]).name for error in errors} == {"wrong.py"}, errors
    for name in ("context", "pears"):
        assert any(f'Unexpected keyword argument "{name}"' in error for error in errors)


@pytest.mark.parametrize(
    "name", ["rank", "kld", "gradient", "compare", "perplexity", "dump", "singular_values", "open"]
)
def test_every_option_is_shown(name: str) -> None:
    shown = inspect.signature(getattr(sb, name)).parameters
    assert {"data", "split", "contexts", "kind", "dtype", "device", "hidden", "tokenizer"} <= set(shown)
    assert not any(each.kind is each.VAR_KEYWORD for each in shown.values())
    assert shown["split"].default == "test"
    assert "contexts: int | None = None" in str(inspect.signature(getattr(sb, name)))


def test_python_and_the_command_have_the_same_defaults() -> None:
    shown = inspect.signature(sb.rank).parameters
    assert {name: shown[name].default for name in RANK} == {name: option.default for name, option in RANK.items()}


@pytest.mark.parametrize("name", ["rank", "kld", "singular_values", "open"])
def test_an_unknown_option_is_a_type_error(name: str) -> None:
    function = getattr(sb, name)
    own = f"{function.__name__}\\(\\) got an unexpected keyword argument 'n_contexts'; it takes source,"
    with pytest.raises(TypeError, match=f"{own} .*data, split, contexts, .*; did you mean 'contexts'\\?"):
        function(np.zeros((3, 2)), n_contexts=3)


def test_an_opened_source_is_measured_often() -> None:
    rows = np.log(np.random.default_rng(0).dirichlet(np.ones(6), 40))
    source = sb.open(rows, contexts=30)
    report, divergence = sb.rank(source), sb.kld(source)
    assert report.spectrum.shape == (30, 6)
    assert divergence.contexts == 30
    assert sb.singular_values(source).values == pytest.approx(report.spectrum.values)
    results: list[Result] = [report, divergence]
    table = sb.frame(results)
    assert isinstance(table, pd.DataFrame)
    assert len(table) == 2
    for result in results:
        json.dumps(result.to_dict(), allow_nan=False)
        assert result._repr_html_().startswith("<table>")
        assert str(result)


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 << 30), ("1.5 kb", 1500), (".5MiB", 1 << 19), ("7", 7), (9, 9), (None, None)]
)
def test_a_size_with_its_unit(text: str | int | None, size: int | None) -> None:
    assert parse_size(text) == size


def test_objects_show_themselves_on_one_short_line(runs: dict[str, Path], corpus_folder: Path) -> None:
    corpus, run = sb.corpora.load(corpus_folder), sb.checkpoint.load(runs["softmax"])
    source = sb.open(run)
    for shown in (corpus, corpus.vocabulary, run, source, sb.singular_values(source), sb.rank(source), sb.kld(source)):
        text = repr(shown)
        assert text.startswith(f"{type(shown).__name__}(")
        assert "\n" not in text
        assert len(text) < 200 + len(str(run.path))


@pytest.mark.parametrize("name", [5, None, [], {}, 1.5, b"gram"])
def test_a_name_of_another_type_is_answered_with_the_known_names(name: Any) -> None:
    for find in (
        lambda: sb.rank(np.eye(3), kind="matrix", method=name),
        lambda: sb.heads.build(name, hidden_size=3, vocab_size=4),
        lambda: sb.training.presets.find(name),
        lambda: sb.table([], format=name),
    ):
        with pytest.raises(sb.BottleneckError, match=r"unknown|must be a text"):
            find()
