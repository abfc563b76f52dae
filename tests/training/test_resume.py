"""A run that was killed or interrupted, at any instant and however often, ends with the bytes of one that was not."""

from __future__ import annotations

import contextlib
import importlib
import json
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
import torch

from softmax_bottleneck.core.files import only_process
from softmax_bottleneck.errors import RunError
from softmax_bottleneck.training import RunConfig, as_toml, finetuning, loop

from .conftest import AWD, Configure, Lines, contents, rows_of, train

fit_module = importlib.import_module("softmax_bottleneck.training.fit")  # the package has a function of that name


class _Killed(BaseException):
    """The process ends here: nothing after it reaches the disk."""


class _Disk:
    """Counts what changes names on the disk, and dies before or after the one that is asked for."""

    def __init__(self, patch: pytest.MonkeyPatch, *, deadly: int | None = None) -> None:
        self.events, self.deadly, self.dead = 0, deadly, False
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, self._watched(getattr(Path, name)))
        patch.setattr(os, "fsync", lambda _: None)  # a kill does not lose what was written, only a power cut does

    def _watched(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Path, *args: Any, **options: Any) -> Any:
            if change.__name__ == "unlink" and not path.exists():
                return None  # the tidying up after a write that went well
            self._step()
            result = change(path, *args, **options)
            self._step()
            return result

        return watched

    def _step(self) -> None:
        if self.dead or self.events == self.deadly:
            self.dead = True
            raise _Killed
        self.events += 1


@contextlib.contextmanager
def _disk(**options: Any) -> Iterator[_Disk]:
    with pytest.MonkeyPatch.context() as patch:
        yield _Disk(patch, **options)


STATES: dict[str, dict[str, Any]] = {
    "all that awd-lstm draws and averages": {
        "backbone": AWD,
        "head": {"name": "mos", "components": 2, "context_dropout": 0.3},
        "optimizer": {"name": "sgd", "learning_rate": 1.0, "clip": 0.25},
        "averaging": {"start": "epoch", "epoch": 1},
        "validations": 2,
        "bptt_deviation": 3.0,
        "loss_fraction": 0.3,
        "micro_batch_size": 3,
        "epochs": 3,
    },
}


@pytest.mark.parametrize("name", [*STATES, "pairs"])
def test_kills_at_every_kind_of_change_on_the_disk(
    name: str, tmp_path: Path, configure: Configure, pairs_config: RunConfig
) -> None:
    """One folder, killed again and again, a little later each time."""
    _kill_in_turn(pairs_config if name == "pairs" else configure(**STATES[name]), tmp_path)


def test_kills_of_the_finetuning_stage(tmp_path: Path, configure: Configure) -> None:
    """From the best weights of a run, averaged from the first step, until validation no longer improves."""
    optimizer = {"name": "sgd", "learning_rate": 12.0}
    averaging = {"start": "non-monotone", "interval": 0, "latest": 2}
    config = configure(optimizer=optimizer, averaging=averaging, validations=2, precision="bfloat16", epochs=4)
    _kill_in_turn(finetuning(train(config, tmp_path / "first").path), tmp_path)
    start, first, *_ = rows_of(tmp_path / "run")
    assert first["averaged_steps"] == first["step"] > start["step"] == 0


def _kill_in_turn(config: RunConfig, tmp_path: Path) -> None:
    with _disk():
        train(config, tmp_path / "whole")
    kills = 0
    for deadly in range(1, 1000, 9):
        try:
            with _disk(deadly=deadly):
                train(config, tmp_path / "run")
            break
        except _Killed:
            kills += 1
    assert kills > 2
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def _command(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "softmax_bottleneck", "train", "--config", "c.toml", "--out", "run", "--device", "cpu"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_a_real_process_is_stopped_killed_and_interrupted(tmp_path: Path, configure: Configure) -> None:
    """SIGSTOP keeps the folder locked, SIGKILL leaves the last saved state, SIGTERM saves the step and names it."""
    config, run = configure(epochs=2, batch_size=1, bptt=4, save_every=20), tmp_path / "run"
    (tmp_path / "c.toml").write_text(as_toml(config.model_dump(mode="json")), encoding="utf-8")
    with _command(tmp_path) as process:
        while not [*(run / "trainer_state").glob("step-*")]:
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        try:
            before = contents(run)
            with pytest.raises(RunError, match=r"another process is training into .*run: wait until it is done, or"):
                train(config, run)
            with pytest.raises(RunError, match="different configuration: seed"):
                train(config.model_copy(update={"seed": 7}), run)
            assert contents(run) == before
        finally:
            process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    with _command(tmp_path) as process:
        assert "continuing from step" in process.stderr.readline()
        process.terminate()
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, errors
    pattern = r"^interrupted; training stopped at step ([\d,]+ of [\d,]+); its state is saved in run, and the same "
    stopped = re.search(pattern + "command continues from there$", errors, re.MULTILINE)
    assert stopped, errors
    heard = Lines()
    train(config, run, progress=heard)
    assert heard.lines[0].startswith(f"{run}: continuing from step {stopped[1]}")
    train(config, tmp_path / "whole")
    assert contents(run) == contents(tmp_path / "whole")
    times = [json.loads(row)["step"] for row in (run / "timing.jsonl").read_text().splitlines()]
    assert times == sorted({*times})


def test_a_folder_that_another_process_has_just_taken_gets_no_configuration(
    tmp_path: Path, configure: Configure
) -> None:
    with only_process(tmp_path), pytest.raises(RunError, match="another process is training into"):
        train(configure(), tmp_path)
    assert not [*tmp_path.iterdir()]


def _interrupt(config: RunConfig, run: Path, place: Any, name: str, *, signals: int = 1) -> str:
    """Train, send SIGINT at the first call of a function, and return the note of the interruption."""
    called = getattr(place, name)

    def signalled(*args: Any, **options: Any) -> Any:
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        return called(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, signalled)
        with pytest.raises(KeyboardInterrupt) as stopped:
            train(config, run)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    (note,) = stopped.value.__notes__
    return str(note)


def test_an_interruption_in_every_step_and_every_validation(tmp_path: Path, configure: Configure) -> None:
    """A validation is not waited for, averaged weights do not stay, and the step before is not repeated."""
    shorter = {"epochs": 1, "averaging": {"start": "epoch"}, "save_every": 1000}
    config, run = configure(**{**STATES["all that awd-lstm draws and averages"], **shorter}), tmp_path / "run"
    whole = train(config, tmp_path / "whole")
    checks = {row["step"] for row in rows_of(whole.path)[:-1]}
    for step in range(1, whole.steps + 1):
        note = _interrupt(config, run, loop, "accumulate")
        at = f"training stopped at step {step:,} of {whole.steps}; its state is saved in {run}, and the same command "
        assert note == at + "continues from there"
        if step in checks and step < whole.steps:
            assert "its state is saved" in _interrupt(config, run, loop, "mean_nll")
    train(config, run)
    assert contents(run) == contents(whole.path)


def test_what_an_interruption_promises(tmp_path: Path, configure: Configure) -> None:
    """A second Ctrl-C does not wait for the end of the step, so that nothing is saved."""
    note = _interrupt(configure(), tmp_path / "run", loop, "accumulate", signals=2)
    assert note == "training stopped at step 0, and nothing is saved yet: run the same command to start over"
    note = _interrupt(configure(), tmp_path / "run", fit_module, "evaluate")
    assert note == f"the training in {tmp_path / 'run'} is done, and the same command evaluates the model"


def _unfinished(folder: Path, config: RunConfig) -> Path:
    """Kill a run at its first mid-epoch state, the fourth file; return that state's file."""
    with _disk(deadly=8), pytest.raises(_Killed):
        train(config, folder)
    (state,) = (folder / "trainer_state").glob("step-*")
    return state


def test_a_run_is_not_started_over(tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on takes the remaining steps, not all of them; without its state it starts over."""
    train(configure(), tmp_path / "whole")
    state = _unfinished(tmp_path / "run", configure())
    assert state.name == "step-000000005.safetensors"
    _unfinished(tmp_path / "over", configure()).unlink()
    steps: list[int] = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: (steps.append(1), step(self))[1])
    train(configure(), tmp_path / "run")
    assert len(steps) == rows_of(tmp_path / "run")[-2]["step"] - 5
    train(configure(), tmp_path / "over")
    assert contents(tmp_path / "run") == contents(tmp_path / "over") == contents(tmp_path / "whole")


def test_files_that_are_lost_before_the_end(tmp_path: Path, configure: Configure) -> None:
    train(configure(), tmp_path)
    whole = contents(tmp_path)
    (tmp_path / "COMPLETE").unlink()
    (tmp_path / "vocabulary.json").unlink()
    train(configure(), tmp_path)
    assert contents(tmp_path) == whole
    (tmp_path / "COMPLETE").unlink()
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"the weights .*model\.safetensors are damaged"):
        train(configure(), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"cannot read the weights .*model\.safetensors: No such file"):
        train(configure(), tmp_path)
