"""Pieces of work on torch's threads, and one after the other where there is no such runtime."""

from __future__ import annotations

import threading

import pytest

from softmax_bottleneck.heads import plif_loops
from softmax_bottleneck.heads.plif_loops import in_parallel


@pytest.fixture(params=[True, False], ids=["OpenMP", "none"])
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(plif_loops, "_runtime", lambda: None)
    return bool(request.param) and plif_loops._runtime() is not None


@pytest.mark.parametrize("count", [0, 1, 3, 17])
@pytest.mark.usefixtures("runtime")
def test_each_piece_is_done_once_and_an_error_is_raised_here(count: int) -> None:
    done: list[int] = []
    in_parallel([lambda number=number: done.append(number) for number in range(count)])  # type: ignore[misc]
    assert sorted(done) == list(range(count))

    def fail() -> None:
        raise FloatingPointError("here")

    with pytest.raises(FloatingPointError, match="here"):
        in_parallel([*[lambda: None] * count, fail])


def test_pieces_run_at_the_same_time(runtime: bool) -> None:
    """Two that wait for each other finish only together; without a runtime neither waits."""
    meeting = threading.Barrier(2)

    def meet() -> None:
        if runtime:
            meeting.wait(timeout=30)

    in_parallel([meet, meet])


def test_work_that_was_not_done_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal before the first line of a member; C code drops its exception."""

    class Deaf:
        @staticmethod
        def GOMP_parallel(*_: object) -> None:
            pass

    monkeypatch.setattr(plif_loops, "_runtime", lambda: Deaf)
    with pytest.raises(KeyboardInterrupt):
        in_parallel([lambda: None, lambda: None])
