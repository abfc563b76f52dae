"""A bar on a terminal, plain lines elsewhere, nothing by default."""

from __future__ import annotations

import io

import pytest

from softmax_bottleneck.core import progress
from softmax_bottleneck.core.progress import SILENT, StreamProgress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _work(reporter: progress.Progress) -> None:
    with reporter.bar("epoch 1/2", 1234, "steps") as bar:
        bar.advance(0)
        for _ in range(1234):
            bar.advance(1, "loss 2.345")
    reporter.line("done: 5.0")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that moves by its second entry at each look."""
    times = [0.0, 1.0]

    def monotonic() -> float:
        times[0] += times[1]
        return times[0]

    monkeypatch.setattr(progress.time, "monotonic", monotonic)
    return times


def test_a_line_says_where_the_work_stands(clock: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is said by default."""
    stream = io.StringIO()
    _work(SILENT)
    assert capfd.readouterr() == ("", "")
    clock[1] = progress.SECONDS_BETWEEN_LINES / 1000
    _work(StreamProgress(stream))
    first, last = stream.getvalue().splitlines()
    description, done = first.split(": ")
    assert description == "epoch 1/2"
    assert done.endswith("/1,234 steps, 00:03 left, loss 2.345")
    assert 950 < int(done.split("/")[0].replace(",", "")) <= 1000
    assert last == "done: 5.0"


def test_a_terminal_gets_a_bar_that_is_wiped_and_lines_that_stand_alone() -> None:
    stream = _Terminal()
    reporter = StreamProgress(stream)
    _work(reporter)
    shown = stream.getvalue()
    assert "epoch 1/2" in shown
    assert "/1234" in shown
    assert "\r" in shown
    assert shown.endswith("done: 5.0\n")
    with reporter.bar("epoch", 10, "steps") as bar:
        bar.advance(5)
        reporter.line("a finished step")
    assert "a finished step\n" in stream.getvalue()


def test_a_stage_is_seen_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = _Terminal()
    with StreamProgress(stream).bar("singular values (factored)", 10_363, "contexts") as bar:
        bar.advance(10_363)
        bar.stage("decomposing the matrix")
        assert stream.getvalue().split("\r")[-1].strip() == "decomposing the matrix"
