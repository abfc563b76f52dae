"""Cells on disk, grids that are killed, workers that die, and a Slurm that is not there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from softmax_bottleneck.core.progress import StreamProgress
from softmax_bottleneck.errors import BottleneckError, ConfigurationError, OutputError
from softmax_bottleneck.synthetic import Cell, FitConfig, grid, run_grid, summarize, table
from softmax_bottleneck.synthetic.cells import read, run, write
from softmax_bottleneck.synthetic.grid import work

SHORT = FitConfig(first_cycle=3, cycles=1)
CELL = Cell(model="softmax", alpha=0.1, vocab=12, dim=2, contexts=20, fit=SHORT)
MEASURED = {"seconds"}

KILLED = grid(["softmax", "sigsoftmax"], [0.1], [30], [2, 3], 3, contexts=100, fit=FitConfig(first_cycle=150, cycles=1))
DRIVER = """
import sys
from pathlib import Path
from softmax_bottleneck.synthetic import FitConfig, grid, run_grid
if __name__ == "__main__":
    cells = grid(
        ["softmax", "sigsoftmax"], [0.1], [30], [2, 3], 3, contexts=100, fit=FitConfig(first_cycle=150, cycles=1)
    )
    run_grid(cells, Path(sys.argv[1]), processes=int(sys.argv[2]))
"""


def _same(first: list[dict[str, object]], second: list[dict[str, object]]) -> bool:
    return [{k: v for k, v in r.items() if k not in MEASURED} for r in first] == [
        {k: v for k, v in r.items() if k not in MEASURED} for r in second
    ]


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    file = tmp_path / "driver.py"
    file.write_text(DRIVER, encoding="utf-8")
    return file


def _start(driver: Path, folder: Path, processes: int) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start a grid, and return it with its workers when its first cell is done."""
    command = [sys.executable, str(driver), str(folder), str(processes)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(folder.glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    return started, psutil.Process(started.pid).children(recursive=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-20],
        lambda data: data.replace(b'"kl": ', b'"kl": 1'),
        lambda data: b"[]",
        lambda data: b"{}",
        lambda data: json.dumps({**json.loads(data), "cell": {}}).encode(),
        lambda data: b"\xff" + data,
    ],
    ids=["empty", "cut", "changed", "list", "object", "another", "no text"],
)
def test_a_damaged_cell_is_computed_again(
    tmp_path: Path, damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    (first,) = run_grid([CELL], tmp_path)
    file = tmp_path / f"{CELL.name}.json"
    file.write_bytes(damage(file.read_bytes()))
    (second,) = run_grid([CELL], tmp_path, progress=StreamProgress(sys.stdout))
    assert f"{file} is damaged or was changed; its cell will be computed again" in capsys.readouterr().out
    assert _same([first], [second])
    assert read(CELL, tmp_path, pytest.fail) is not None


def test_a_larger_grid_takes_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = grid(["softmax"], [0.1], [12], [2], 2, contexts=20, fit=SHORT)
    first = run_grid(small, tmp_path, processes=1)
    monkeypatch.setattr(
        sys.modules[work.__module__], "run", lambda cell, **_: run(cell) if cell not in small else pytest.fail("again")
    )
    large = grid(["softmax", "sigsoftmax"], [0.1], [12], [2], 3, contexts=20, fit=SHORT)
    found = run_grid(large, tmp_path, processes=1)
    assert len(found) == 6
    assert [found[large.index(cell)] for cell in small] == first


def test_a_killed_grid_goes_on(tmp_path: Path, driver: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What two killed processes left is kept, and is what this process makes."""
    folder = tmp_path / "cells"
    started, workers = _start(driver, folder, 2)
    started.kill()
    started.communicate()
    kept = {file.name: file.read_bytes() for file in folder.glob("*.json")}
    assert 1 <= len(kept) < 12
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive, "workers must not outlive their parent"
    kept = {file.name: file.read_bytes() for file in folder.glob("*.json")}
    found = run_grid(KILLED, folder, processes=1, progress=StreamProgress(sys.stdout))
    assert f"{len(kept)} of 12 cells already have results in {folder}" in capsys.readouterr().out
    files = {file.name: file.read_bytes() for file in folder.glob("*.json")}
    assert len(files) == 12
    assert {name: files[name] for name in kept} == kept
    again = [cell for cell in KILLED if f"{cell.name}.json" in kept][:2]
    assert _same([found[KILLED.index(cell)] for cell in again], [run(cell) for cell in again])


def test_an_interruption_counts_the_cells_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [replace(CELL, seed=seed) for seed in range(3)]
    module = sys.modules["softmax_bottleneck.synthetic.grid"]

    def interrupted(cell: Cell, *rest: Any) -> Any:
        if cell.seed == 1:
            raise KeyboardInterrupt
        return work(cell, *rest)

    monkeypatch.setattr(module, "work", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_grid(cells, tmp_path, processes=1)
    assert stopped.value.__notes__ == [f"1 of 3 cells are kept in {tmp_path}, and the same command fits the others"]


def test_a_worker_that_is_killed_is_a_sentence(tmp_path: Path, driver: Path) -> None:
    started, workers = _start(driver, tmp_path / "cells", 2)
    [victim, *_] = [worker for worker in workers if "spawn_main" in " ".join(worker.cmdline())]
    victim.kill()
    _, errors = started.communicate(timeout=60)
    assert started.returncode != 0
    assert f"{BottleneckError.__name__}: a worker process was killed" in errors


@pytest.mark.parametrize(("rate", "model"), [(1e2, "mos"), (1e10, "lms-plif"), (1e30, "softmax")])
def test_a_divergence_does_not_stop_the_grid(rate: float, model: str, tmp_path: Path) -> None:
    """To a number, to one whose gradient is none, and to none."""
    config = FitConfig(first_cycle=3, cycles=3, context_rate=rate, embedding_rate=rate, function_rate=rate)
    wild = replace(CELL, model=model, fit=config)
    broken, fine = run_grid([wild, replace(CELL, model=model, seed=CELL.seed + 1)], tmp_path, processes=1)
    assert (broken["diverged"], broken["kl"], broken["mode_match"], broken["reachable"]) == (True, None, None, None)
    assert (broken["converged"], broken["gradient_norm"]) == (False, None)
    assert not fine["diverged"]
    assert "diverged" in table([broken])
    summary = summarize([broken, fine])
    assert summary["diverged"].tolist() == [1]
    assert summary["kl"].tolist() == [fine["kl"]]
    assert "/2, 1 diverged" in table([broken, fine])


def test_what_has_no_mean() -> None:
    one = run(CELL)
    with pytest.raises(ConfigurationError, match=f"two results of .* have the seed {CELL.seed}"):
        summarize([one, one])
    with pytest.raises(ConfigurationError, match=r"have \d+ and 10000 contexts"):
        summarize([one, {**one, "seed": CELL.seed + 1, "contexts": 10_000}])


def test_a_cell_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / f"{CELL.name}.json").mkdir()
    with pytest.raises(OutputError, match=r"the cell .* cannot be read: Is a directory"):
        run_grid([CELL], tmp_path)


def test_two_kinds_of_device_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = replace(CELL, seed=CELL.seed + 1)
    write(other, {**run(other), "device": "cuda:0"}, tmp_path)
    run_grid([CELL, other], tmp_path, processes=1, progress=StreamProgress(sys.stdout))
    assert "were fitted on cpu and cuda, each of which draws its own distributions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.0}, "alpha must lie between"),
        ({"vocab": 0}, "at least one context and one token"),
        ({"contexts": 10**24}, "at most 2,147,483,647 contexts and tokens, not 1000000000000000000000000 contexts"),
        ({"vocab": -(10**30)}, "at least one context and one token"),
        ({"dim": 10**400}, "the embedding size must lie between 1 and 2,147,483,647, not 1"),
        ({"alpha": float("nan")}, "alpha must lie between"),
        ({"seed": 2**63}, "the seed must lie between 0"),
        ({"dim": 0}, "the embedding size must lie between 1 and 2,147,483,647, not 0"),
        ({"model": "nonsense"}, "unknown model 'nonsense'; known models are softmax, mos"),
        ({"seed": -1}, r"the seed must lie between 0 and 2\*\*63 - 1, not -1"),
    ],
)
def test_cells_that_cannot_be_run(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        replace(CELL, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("models", "seeds", "message"),
    [([], 1, "is empty"), (["mos"], -1, "is empty"), (["mos"], 10**24, "has 1,000,000,000,000,000,000,000,000 cells")],
)
def test_grids_of_no_cells_or_too_many(models: list[str], seeds: int, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the grid {message}"):
        grid(models, [0.1], [10], [2], seeds, contexts=5)


def test_a_cell_larger_than_the_machine(tmp_path: Path) -> None:
    huge = replace(CELL, contexts=2**31 - 1, dim=1000)
    with pytest.raises(ConfigurationError, match=r"need about [\d,]+ GiB, and this machine has"):
        run_grid([CELL, huge], tmp_path)
    assert not [*tmp_path.glob("*.json")]
