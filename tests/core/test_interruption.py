"""A signal that is noted is obeyed, at the latest when the work ends."""

from __future__ import annotations

import signal

import pytest

from softmax_bottleneck.core.interruption import Stop


def _work(stop: Stop, error: Exception | None = None) -> None:
    with stop.deferred():
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        if error is not None:
            raise error


def test_a_signal_during_the_last_step() -> None:
    with pytest.raises(KeyboardInterrupt):
        _work(Stop())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_of_the_work_comes_first() -> None:
    with pytest.raises(ValueError, match="in the work"):
        _work(Stop(), ValueError("in the work"))
