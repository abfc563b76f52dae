"""A signal that is noted is obeyed, at the latest when the work ends."""

from __future__ import annotations

import signal

import pytest

from softmax_bottleneck.core.interruption import Stop, Terminated, note_if_interrupted


@pytest.mark.parametrize("error", [None, ValueError("in the work")])
def test_a_signal_during_the_last_step(error: Exception | None) -> None:
    """It ends the work, after which an error of the work comes first."""

    def work() -> None:
        with Stop().deferred() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.requested
            if error is not None:
                raise error

    with pytest.raises(type(error) if error else KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_first_signal_waits_and_an_ignored_one_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Stop().deferred() as stop:
            signal.raise_signal(signal.SIGTERM)
            assert not stop.requested
            signal.raise_signal(signal.SIGINT)
            assert stop.requested
            with pytest.raises(KeyboardInterrupt):
                stop.obey()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Terminated])
def test_notes_are_added_from_the_inside_out(stop: type[BaseException]) -> None:
    with (
        pytest.raises(stop) as raised,
        note_if_interrupted(lambda: "outer"),
        note_if_interrupted(lambda: ""),
        note_if_interrupted(lambda: "inner"),
    ):
        raise stop
    assert raised.value.__notes__ == ["inner", "outer"]
    with pytest.raises(ValueError, match="wrong") as failed, note_if_interrupted(lambda: "outer"):
        raise ValueError("wrong")
    assert not hasattr(failed.value, "__notes__")
