"""Cases in processes of their own: real ones, that do small work."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from softmax_bottleneck.bench.in_turn import Goal, in_turn, report
from softmax_bottleneck.errors import BottleneckError


def small_case(folder: Path, name: str, seconds: float = 0.0, size: int = 0) -> Callable[[], Any]:
    """Return work that writes its name into the file ``order``, and whose end depends on the name."""
    if name == "d":
        raise KeyError("no input")
    count = 0

    def work() -> dict[str, float]:
        nonlocal count
        count += 1
        sys.stdout.write("noise")
        os.write(1, b"more of it")
        if name == "e":
            os.kill(os.getpid(), 9)
        with (folder / "order").open("a") as file:
            file.write(name)
        if name == "c" and count == 2:
            raise ValueError("the second time")
        end = time.perf_counter() + seconds
        held = bytearray(b"1") * size
        while time.perf_counter() < end:
            pass
        return {"count": count, "half": count / 2, "held": len(held)}

    return work


def how_it_started() -> Callable[[], Any]:
    return lambda: {"process": type(multiprocessing.current_process()).__name__}


def children() -> list[psutil.Process]:
    """The processes of cases: those of the process from which they are forked."""
    servers = [child for child in psutil.Process().children() if "forkserver" in " ".join(child.cmdline())]
    return [case for server in servers for case in server.children()]


pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux's /proc")


def test_one_run_of_each_after_one_of_every_other(tmp_path: Path) -> None:
    cases = {"A": partial(small_case, tmp_path, "a", 0.03), "B": partial(small_case, tmp_path, "b", 0.1, 50_000_000)}
    rows = in_turn(cases, runs=3)
    assert (tmp_path / "order").read_text() == "ab" * 4  # the first of each is the warm-up
    assert list(rows) == ["A", "B"]
    assert rows["A"]["case"] == {}
    assert (rows["B"]["count"], rows["B"]["half"], rows["A"]["held"]) == (4, 1.5, 0)  # the last; a float's median
    assert all(seconds >= 0.03 for seconds in rows["A"]["runs"])
    assert rows["B"]["seconds"] == sorted(rows["B"]["runs"])[1] >= 0.1
    assert 45e6 < rows["B"]["memory_bytes"] < 80e6
    assert rows["A"]["memory_bytes"] < 20e6
    assert not children()
    (tmp_path / "order").unlink()
    in_turn(cases, runs=4, seconds=0.15, warm_up=False)  # no round begins when the slowest has had its time
    assert (tmp_path / "order").read_text() == "abab"


@pytest.mark.parametrize(("device", "process"), [("cpu", "ForkServerProcess"), ("mps", "SpawnProcess")])
def test_a_gpu_gets_processes_that_are_not_forked(device: str, process: str) -> None:
    """CUDA refuses forks; the module of "mps" is in every torch, and says nothing of memory here."""
    row = in_turn({"only": partial(how_it_started)}, device=device, runs=1, warm_up=False)["only"]
    assert row["process"] == process
    assert (row["memory_bytes"] is None) == (device != "cpu")


def test_goals_follow_from_rows() -> None:
    rows = {"a": {"seconds": 6.0, "bytes": 8}, "b": {"seconds": 3.0, "bytes": 0}}
    goals = [
        Goal("twice", "a", "<=", 2.0, "b"),
        Goal("half", "b", ">=", 0.6, "a"),
        Goal("KiB", "a", "<=", 1.0, key="bytes", unit=1024),
        Goal("over nothing", "a", "<=", 1.0, "b", "bytes"),
        Goal("not measured", "c", "<=", 1.0),
        Goal("beside nothing", "a", "<=", 1.0, "c"),
    ]
    measured = {goal["what"]: (goal["measured"], goal["bound"], goal["met"]) for goal in report(rows, goals)["goals"]}
    assert measured == {
        "twice": (2.0, "<= 2", True), "half": (0.5, ">= 0.6", False), "KiB": (8 / 1024, "<= 1", True)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cases", "reason"),
    [
        ("ac", "the benchmark 'c' failed: ValueError: the second time"),
        ("e", "the benchmark 'e' failed: .* terminated abruptly"),
        ("d", "the benchmark 'd' failed: KeyError: 'no input'"),
    ],
)
def test_a_case_that_fails_says_why_and_ends_all(
    tmp_path: Path, cases: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BottleneckError, match=reason):
        in_turn({name: partial(small_case, tmp_path, name) for name in cases})
    assert not children()
    assert capfd.readouterr() == ("", "")
