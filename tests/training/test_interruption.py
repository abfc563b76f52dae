"""Ctrl-C and SIGTERM: the step is saved and named, and the run continues to the bytes of one that was not stopped."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from softmax_bottleneck.core.interruption import Stop, Terminated, explained
from softmax_bottleneck.core.progress import Progress
from softmax_bottleneck.training import RunConfig, fit, loop

Configure = Callable[..., RunConfig]
Contents = Callable[[Path], dict[str, bytes]]


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """A shell has what it runs in the background ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class _Lines(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


def _awd(configure: Configure) -> RunConfig:
    """Return a run that draws and averages all there is, and saves only when it must."""
    return configure(
        backbone={"name": "awd-lstm", "embedding_size": 4, "hidden_sizes": [7, 6]},
        optimizer={"name": "sgd", "learning_rate": 1.0, "clip": 0.25},
        averaging={"start": "epoch", "epoch": 1},
        validations=2,
        bptt_deviation=3.0,
        save_every=1000,
    )


def _interrupted(config: RunConfig, run: Path, place: Any, name: str, *, signals: int = 1) -> list[str]:
    """Train, send SIGINT at the first call of a function, and return the notes of the interruption."""
    called = getattr(place, name)

    def signalled(*args: Any, **options: Any) -> Any:
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        return called(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, signalled)
        with pytest.raises(KeyboardInterrupt) as stopped:
            fit(config, run, device="cpu")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return stopped.value.__notes__


def test_an_interruption_in_every_step(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    config = _awd(configure)
    whole, run = fit(config, tmp_path / "whole", device="cpu"), tmp_path / "run"
    for step in range(1, whole.steps + 1):
        (note,) = _interrupted(config, run, loop.Loop, "_step")
        at = f"training stopped at step {step} of {whole.steps}; its state is saved in {run}, and the same command "
        assert note == at + "continues from there"
    heard = _Lines()
    fit(config, run, device="cpu", progress=heard)
    assert heard.lines[0].startswith(f"{run}: continuing from step {whole.steps} of {whole.steps}, ")
    assert contents(run) == contents(whole.path)


def test_an_interruption_in_every_validation(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    """Its end is not waited for, averaged weights do not stay, and the step before is not repeated."""
    config = _awd(configure)
    whole, run = fit(config, tmp_path / "whole", device="cpu"), tmp_path / "run"
    for validation in range(4):
        (note,) = _interrupted(config, run, loop, "mean_nll")
        assert "its state is saved" in note
        if validation < 3:
            _interrupted(config, run, loop.Loop, "_step")
    fit(config, run, device="cpu")
    assert contents(run) == contents(whole.path)


def test_before_anything_is_saved_nothing_is_promised(tmp_path: Path, configure: Configure) -> None:
    """A second Ctrl-C does not wait for the end of the step."""
    (note,) = _interrupted(configure(), tmp_path / "run", loop.Loop, "_step", signals=2)
    assert note == "training stopped at step 0, and nothing is saved yet: run the same command to start over"


def test_an_interruption_while_the_test_split_is_scored(tmp_path: Path, configure: Configure) -> None:
    module = importlib.import_module("softmax_bottleneck.training.fit")  # the package has a function of that name
    (note,) = _interrupted(configure(), tmp_path / "run", module, "evaluate")
    assert note == f"the training in {tmp_path / 'run'} is done, and the same command evaluates the model"


def test_the_command_interrupted_again_and_again(tmp_path: Path, configure: Configure, contents: Contents) -> None:
    """Two real signals at whatever step they meet; the next call says the step that the last one named."""
    config = configure(epochs=12, batch_size=1, bptt=4, save_every=10**6)
    (tmp_path / "c.json").write_text(config.model_dump_json(), encoding="utf-8")
    named = ""
    for number in (signal.SIGTERM, signal.SIGINT):
        with _train(tmp_path) as process:
            assert process.stderr is not None
            first = process.stderr.readline()
            assert f"continuing from step {named}" in first if named else "run: " in first
            time.sleep(0.3)
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 128 + number, errors
        found = re.search(r"^interrupted; training stopped at step ([\d,]+ of [\d,]+); its state is saved in run, and "
                          r"the same command continues from there$", errors, re.MULTILINE)  # fmt: skip
        assert found, errors
        named = found[1]
    with _train(tmp_path) as process:
        _, errors = process.communicate(timeout=120)
    assert f"run: continuing from step {named}" in errors
    assert process.returncode == 0
    fit(config, tmp_path / "whole", device="cpu")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def _train(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "softmax_bottleneck", "train", "--config", "c.json", "--out", "run"]
    return subprocess.Popen(
        [*command, "--device", "cpu"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


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
    with pytest.raises(stop) as raised, explained(lambda: "outer"), explained(lambda: ""), explained(lambda: "inner"):
        raise stop
    assert raised.value.__notes__ == ["inner", "outer"]
    with pytest.raises(ValueError, match="wrong") as failed, explained(lambda: "outer"):
        raise ValueError("wrong")
    assert not hasattr(failed.value, "__notes__")
