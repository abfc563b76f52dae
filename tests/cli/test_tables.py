"""Several sources measured into one table, and how results look on a terminal."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

import softmax_bottleneck as sb

from .conftest import Bottleneck

RUNS = ("demo/runs/softmax", "demo/runs/mos")


@pytest.mark.parametrize(
    ("as_format", "start"),
    [(None, "model "), ("table", "model "), ("markdown", "| model "), ("latex", r"\begin{table}"), ("lines", "  ")],
)
def test_formats(as_format: str | None, start: str, world: Path, bottleneck: Bottleneck) -> None:
    """What csv and JSON hold is in the golden records; --strict asks every rank to be determinate."""
    np.save("identity.npy", np.eye(12))
    np.save("hilbert.npy", 1 / (np.add.outer(np.arange(12.0), np.arange(12.0)) + 1))
    options = ["--kind", "matrix", "--strict", *(["--format", as_format] if as_format else [])]
    done = bottleneck("rank", "identity.npy", "My own=hilbert.npy", *options)
    assert done.exit_code == 3
    assert done.stdout.lstrip("\n").startswith(start)
    assert ("My own" in done.stdout) == (as_format != "lines")
    assert "\x1b" not in done.stdout
    assert done.stderr.startswith("indeterminate: ")  # what the table says is said once
    assert bottleneck("rank", "identity.npy", "a=identity.npy", *options).exit_code == 0


def test_a_folder_of_runs_is_all_of_them(world: Path, bottleneck: Bottleneck) -> None:
    done = bottleneck("kld", "demo/runs", "--contexts", "9", "--format", "csv")
    names = sorted(each.parent.name for each in Path("demo/runs").glob("*/config.json"))
    assert [row["name"] for row in csv.DictReader(io.StringIO(done.stdout))] == names
    assert len(names) > 1


def test_all_sources_are_opened_before_one_is_measured(world: Path, bottleneck: Bottleneck) -> None:
    np.save("logits.npy", np.random.default_rng(0).standard_normal((9, 5)))
    for source, error in (("missing.npy", "the file missing.npy does not"), ("logits.npy", "row 0 of logits.npy is")):
        assert bottleneck("rank", RUNS[0], source).stderr.startswith(f"Error: {error}")


def test_a_terminal_of_80_columns(world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are wrapped with a hanging indent, and a table of ranks fits."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    lines, table = (
        bottleneck("rank", *words, color=True).stdout.split("\n") for words in ((RUNS[1], "--details"), RUNS)
    )
    bold = [line for line in lines if line.startswith("\x1b[1m")]
    assert len([line for line in bold if line.strip("\x1b[1m").lstrip().startswith("rank  ")]) == 1
    plain = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in lines if line]
    assert max(map(len, plain)) <= 80
    indent = next(line.index("matrix  ") for line in plain if "matrix  " in line) + len("matrix  ")
    continued = [line for line in plain if line[:indent].isspace()]
    assert continued
    assert not any(line[indent].isspace() for line in continued)
    assert table[0].split() == ["model", "d", "bound", "rank", "row-centred", "rank"]
    assert [line.split()[0] for line in table[2:4]] == ["softmax", "mos"]
    assert max(map(len, table)) <= 80


@pytest.mark.parametrize("command", ["rank", "kld"])
def test_a_table_in_a_pipe_fits_80_columns(command: str, world: Path, bottleneck: Bottleneck) -> None:
    """A table that is too wide is turned if that helps, and else cut; no column is lost."""
    several = [f"a_name_as_long_as_people_give_{number}={RUNS[0]}" for number in range(4)]
    for sources in (RUNS, several):
        done = bottleneck(command, *sources, "--contexts", "60")
        assert max(map(len, done.stdout.splitlines())) <= 80
        header = csv.DictReader(
            io.StringIO(bottleneck(command, *sources, "--contexts", "60", "--format", "csv").stdout)
        )
        assert "rank" in (header.fieldnames or ()) or "kld" in (header.fieldnames or ())
        assert all(source.rpartition("=")[0] in done.stdout for source in sources)


def test_results_before_an_error_are_shown_and_written(world: Path, bottleneck: Bottleneck) -> None:
    log_probs = np.log(np.random.default_rng(0).dirichlet(np.ones(5), 9))
    log_probs[7] += 1
    np.save("damaged.npy", log_probs)
    for command in ("rank", "kld"):
        done = bottleneck(
            command, *RUNS, "damaged.npy", "--contexts", "9", "--format", "csv", "--json", f"{command}.json"
        )
        assert done.exit_code == 1
        assert done.stderr.splitlines()[-1].startswith("Error: ")
        names = [row["name"] for row in csv.DictReader(io.StringIO(done.stdout))]
        written = json.loads(Path(f"{command}.json").read_text(encoding="utf-8"))["results"]
        assert names == [result["source"]["label"] for result in written] == ["softmax", "mos"]


def test_goals_of_a_benchmark_are_a_table(bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch) -> None:
    goals = [{"what": part, "measured": 1.2345, "bound": ">= 1.2", "met": part == "a"} for part in ("a", "b" * 40)]
    measured = {"cases": {"mos": {"seconds": 1.0, "memory_bytes": 5 << 20}}, "goals": goals}
    monkeypatch.setattr("softmax_bottleneck.bench.bench_heads", lambda **_: measured)
    lines = bottleneck("bench", "heads").stdout.splitlines()
    assert [line.split()[-3:] for line in lines[-2:]] == [[">=", "1.2", "yes"], [">=", "1.2", "NO"]]
    assert max(map(len, lines)) <= 80


def test_a_comparison_fails_when_no_model_keeps_the_limits(world: Path, bottleneck: Bottleneck) -> None:
    """The table begins with a verdict, and its order is that of KL."""
    logits = np.random.default_rng(0).standard_normal((60, 20))
    for name, size in (("base", 0.0), ("far", 0.5), ("near", 0.1)):
        np.save(f"{name}.npy", logits + size * np.random.default_rng(1).standard_normal(logits.shape))
    sources = "base.npy", "far.npy", "near.npy", "--kind", "logits", "--max-kl"
    done = bottleneck("compare", *sources, "0.05")
    assert done.exit_code == 0
    assert done.stdout.startswith("near passes and is closest to base: the same token is the likeliest in ")
    header = next(line.split() for line in done.stdout.splitlines() if line.startswith("model"))
    assert header == ["model", "near", "far"] or header[:2] == ["model", "passed"]
    done = bottleneck("compare", *sources, "1e-9", "--json", "-")
    assert done.exit_code == 4
    saved = json.loads(done.stdout)
    assert saved["verdict"].startswith("none passes; ")
    assert [each["passed"] for each in saved["results"]] == [False, False]


def test_each_source_may_have_options_of_its_own(bottleneck: Bottleneck, tmp_path: Path, monkeypatch: Any) -> None:
    """Logits beside log-probabilities, two heads, and one file twice; an option that its source does not take."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    logits, H, W = rng.standard_normal((30, 9)), rng.standard_normal((30, 4)), rng.standard_normal((9, 4))
    for name, array in {"logits": logits, "p": log_softmax(logits, 1), "h": H, "W 4": W, "W5": W + 0.1}.items():
        np.save(f"{name}.npy", array)
    compare = ["compare", "--examples", "0", "--format", "json"]
    done = bottleneck(*compare, "P=logits.npy --kind logits", "p.npy")
    assert json.loads(done.stdout)["statistics"]["kl"]["value"] == pytest.approx(0, abs=1e-12), done.output
    heads = ["q4=h.npy --head 'W 4.npy' --scale 2", "q5=h.npy --head W5.npy"]
    done = bottleneck(*compare, "logits.npy", *heads, "--kind", "logits")
    found = {
        each["sources"][1]["label"]: each["statistics"]["kl"]["value"] for each in json.loads(done.output)["results"]
    }
    opened = {"P": sb.open(logits, kind="logits"), "q4": sb.open("h.npy", head="W 4.npy", scale=2.0)}
    assert found["q4"] == pytest.approx(sb.compare(opened)[0].statistics["kl"].value)
    assert found["q5"] != found["q4"]
    done = bottleneck(*compare, "logits.npy --kind logits", "p.npy --scale 2")
    assert (done.exit_code, "scale does not apply to a file of a matrix (p.npy)" in done.output) == (1, True), (
        done.output
    )
    for wrong in ("--kind logit", "--kind 'logits"):
        done = bottleneck(*compare, f"logits.npy {wrong}", "p.npy")
        assert done.exit_code == 2, done.output
    done = bottleneck("rank", "h.npy --head W5.npy", "p.npy", "--json", "W5.npy")
    assert "it is part of what is read, W5.npy" in done.output
