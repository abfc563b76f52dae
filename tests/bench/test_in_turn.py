"""Cases in processes of their own: real ones, that do small work."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from softmax_bottleneck.bench.in_turn import in_turn
from softmax_bottleneck.errors import BottleneckError

CASE = """
import os, sys, time
from softmax_bottleneck.bench.process import serve

name, seconds, size = sys.argv[1:]
seconds, size, count = float(seconds), int(size), 0

def work():
    global count
    count += 1
    print("noise of", name)
    os.write(1, b"more of it")
    if name == "e":
        os.kill(os.getpid(), 9)
    with open("order", "a") as file:
        file.write(name)
    if name == "c" and count == 2:
        raise ValueError("the second time")
    end = time.perf_counter() + seconds
    held = bytearray(b"1") * size
    while time.perf_counter() < end:
        pass
    return {"count": count, "held": len(held)}

if name == "d":
    raise KeyError("no input")
serve(work)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "small_case.py").write_text(CASE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # python -m looks in the working folder first
    return "small_case"


pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux's /proc")


def test_one_run_of_each_after_one_of_every_other(module: str) -> None:
    found = in_turn(module, {"A": ("a", "0.03", "0"), "B": ("b", "0.1", "50000000")}, runs=3)
    assert Path("order").read_text() == "ab" * 4  # the first of each is the warm-up
    assert list(found) == ["A", "B"]
    assert [result["count"] for result in found["B"].results] == [2, 3, 4]
    assert found["A"].result == {"count": 4, "held": 0}
    assert all(seconds >= 0.03 for seconds in found["A"].runs)
    assert found["B"].seconds == sorted(found["B"].runs)[1] >= 0.1
    assert 45e6 < found["B"].memory_bytes < 80e6
    assert found["A"].memory_bytes < 20e6
    assert found["A"].to_dict().keys() == {"seconds", "runs", "memory_bytes", "results"}
    assert not [child for child in psutil.Process().children() if "small_case" in child.cmdline()]


def test_no_round_begins_when_the_slowest_has_had_its_time(module: str) -> None:
    in_turn(module, {"A": ("a", "0", "0"), "B": ("b", "0.2", "0")}, runs=4, seconds=0.3, warm_up=False)
    assert Path("order").read_text() == "abab"


@pytest.mark.parametrize(
    ("cases", "reason"),
    [
        ([("a", "0", "0"), ("c", "0", "0")], r"the benchmark c 0 0 failed: ValueError: the second time"),
        ([("e", "0", "0")], r"the benchmark e 0 0 failed: its process ended with exit code -9"),
        ([("d", "0", "0")], r"the benchmark d 0 0 failed: KeyError: 'no input'"),
    ],
)
def test_a_case_that_fails_says_why_and_ends_all(
    module: str, cases: list[tuple[str, str, str]], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BottleneckError, match=reason):
        in_turn(module, {case[0]: case for case in cases})
    assert not [child for child in psutil.Process().children() if "small_case" in child.cmdline()]
    assert capfd.readouterr() == ("", "")


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(BottleneckError, match=r"the benchmark x failed: .*No module named no_such_module"):
        in_turn("no_such_module", {"x": ("x",)})
