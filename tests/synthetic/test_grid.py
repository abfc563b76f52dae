"""Cells on disk, grids that are killed, workers that die, and a Slurm that is not there."""

from __future__ import annotations

import operator
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from softmax_bottleneck.core.progress import StreamProgress
from softmax_bottleneck.core.workers import run_in_workers
from softmax_bottleneck.errors import BottleneckError, ConfigurationError, OutputError
from softmax_bottleneck.synthetic import Cell, CellResult, FitConfig, grid, run_grid, summarize, table
from softmax_bottleneck.synthetic.cells import run, write
from softmax_bottleneck.synthetic.grid import work

SHORT = FitConfig(first_cycle=3, cycles=1, rounds=0)
CELL = Cell(model="softmax", alpha=0.1, vocab=12, dim=2, contexts=20, fit=SHORT)

DRIVER = """
import sys
from pathlib import Path
from softmax_bottleneck.synthetic import FitConfig, grid, run_grid
if __name__ == "__main__":
    fit = FitConfig(first_cycle=60, cycles=1, rounds=0)
    run_grid(grid(["softmax"], [0.1], [30], [2], 8, contexts=100, fit=fit), Path(sys.argv[1]), processes=2)
"""


def _same(first: list[CellResult], second: list[CellResult]) -> bool:
    return [{**result, "seconds": 0} for result in first] == [{**result, "seconds": 0} for result in second]


def test_a_damaged_cell_is_named(tmp_path: Path) -> None:
    run_grid([CELL], tmp_path)
    file = tmp_path / f"{CELL.name}.json"
    for damage in (b"[]", b'{"cell": {}, "result": {"kl": 1}}', file.read_bytes()[:-9]):
        file.write_bytes(damage)
        with pytest.raises(OutputError, match=rf"{CELL.name}\.json is damaged .*remove it, and its cell will be"):
            run_grid([CELL], tmp_path)


def test_a_larger_grid_takes_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time is said before the first fit, and that another kind of device drew other distributions."""
    small = grid(["softmax"], [0.1], [12], [2], 2, contexts=20, fit=SHORT)
    first = run_grid(small, tmp_path, processes=1)
    monkeypatch.setattr(
        sys.modules[work.__module__], "run", lambda cell, **_: run(cell) if cell not in small else pytest.fail("again")
    )
    large = grid(["softmax", "sigsoftmax"], [0.1], [12], [2], 3, contexts=20, fit=SHORT)
    write(large[-1], {**run(large[-1]), "device": "cuda:0"}, tmp_path)
    for times in (1, 0):
        found = run_grid(large, tmp_path, processes=1, progress=StreamProgress(sys.stdout))
        said = capsys.readouterr().out
        assert len(re.findall(r"^about [\d.]+ (?:s|minutes) for 3 fits, .*\n.*seed 2", said, re.M)) == times
        assert "were fitted on cpu and cuda, each of which draws its own distributions" in said
    assert len(found) == 6
    assert [found[large.index(cell)] for cell in small] == first


def test_a_killed_grid_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What two killed processes left is kept, and is what this process makes."""
    driver, folder = tmp_path / "driver.py", tmp_path / "cells"
    driver.write_text(DRIVER, encoding="utf-8")
    started = subprocess.Popen([sys.executable, str(driver), str(folder)], stderr=subprocess.PIPE, text=True)
    while not list(folder.glob("*.json")) and started.poll() is None:
        time.sleep(0.01)
    workers = psutil.Process(started.pid).children(recursive=True)
    started.kill()
    started.communicate()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive, "workers must not outlive their parent"
    kept = {file.name: file.read_bytes() for file in folder.glob("*.json")}
    assert 1 <= len(kept) < 8
    cells = grid(["softmax"], [0.1], [30], [2], 8, contexts=100, fit=FitConfig(first_cycle=60, cycles=1, rounds=0))
    found = run_grid(cells, folder, processes=1, progress=StreamProgress(sys.stdout))
    assert f"{len(kept)} of 8 cells already have results in {folder}" in capsys.readouterr().out
    files = {file.name: file.read_bytes() for file in folder.glob("*.json")}
    assert len(files) == 8
    assert {name: files[name] for name in kept} == kept
    again = next(cell for cell in cells if f"{cell.name}.json" in kept)
    assert _same([found[cells.index(again)]], [run(again)])


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


def test_a_worker_that_is_killed_is_a_sentence() -> None:
    with pytest.raises(BottleneckError, match="a worker process was killed, probably because memory ran out"):
        list(run_in_workers(operator.call, os._exit, [9], processes=1))


@pytest.mark.parametrize(("rate", "model"), [(1e2, "mos"), (1e10, "lms-plif"), (1e30, "softmax")])
def test_a_divergence_does_not_stop_the_grid(rate: float, model: str, tmp_path: Path) -> None:
    """To a number, to one whose gradient is none, and to none."""
    config = FitConfig(first_cycle=3, cycles=3, rounds=0, context_rate=rate, embedding_rate=rate, function_rate=rate)
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": float("nan")}, "alpha must lie between"),
        ({"contexts": 10**24}, "contexts must be at most 2,147,483,647, not 1000000000000000000000000"),
        ({"vocab": -(10**30)}, "vocab must be at least 1, not -1"),
        ({"seed": -1}, r"the seed must lie between 0 and 2\*\*63 - 1, not -1"),
        ({"model": "nonsense"}, "unknown model 'nonsense'; known models are softmax, mos"),
    ],
)
def test_cells_that_cannot_be_run(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        replace(CELL, **change)  # type: ignore[arg-type]


def test_grids_that_cannot_be_run(tmp_path: Path) -> None:
    for models, seeds, message in (([], 1, "is empty"), (["mos"], 10**24, "has 1,000,000,000,000,000,000,000,000 ")):
        with pytest.raises(ConfigurationError, match=f"the grid {message}"):
            grid(models, [0.1], [10], [2], seeds, contexts=5)
    with pytest.raises(ConfigurationError, match=r"need about [\d,]+ GiB, and this machine has"):
        run_grid([CELL, replace(CELL, contexts=2**31 - 1, dim=1000)], tmp_path)
    assert not [*tmp_path.glob("*.json")]
