"""Two processes of PyTorch's launcher against one, and two that are killed and continued."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from softmax_bottleneck.core.parallel import Processes
from softmax_bottleneck.errors import BottleneckError, ConfigurationError, RunError
from softmax_bottleneck.training import RunConfig, as_toml, loop

from .conftest import AWD, Configure, contents, rows_of, train

LOST = 9
"""Exit code of a process that dies."""
PROGRAM = """
import sys, time
from pathlib import Path
from softmax_bottleneck.cli import main
from softmax_bottleneck.core import parallel
from softmax_bottleneck.training import loop

parallel.SECONDS_TO_WAIT = 2  # less than the first validation takes
validate = loop.Loop._validate
loop.Loop._validate = lambda self, epoch: (time.sleep(2.5 * (epoch == 1)), validate(self, epoch))[1]
try:
    main(sys.argv[1:], prog_name="bottleneck")
finally:
    threads = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
    assert not any("gloo" in name for name in threads), f"at the interpreter's end there were still {threads}"
"""


def _die_after_seven_steps() -> None:
    step = loop.Loop._step

    def dies(self: loop.Loop, *rest: Any) -> None:
        if self.state.step == 7:
            os._exit(LOST)
        step(self, *rest)

    loop.Loop._step = dies  # type: ignore[method-assign]


def _member(config: RunConfig, out: Path, variables: Mapping[str, str], dies: bool) -> None:
    """Train as one of two processes; write the sentence of an error into a file."""
    os.environ.update(variables)
    if dies:
        _die_after_seven_steps()
    try:
        train(config, out)
    except BottleneckError as error:
        out.with_suffix(".txt").write_text(str(error), encoding="utf-8")
        sys.exit(1)


def _start(config: RunConfig, out: Path, *, dies: bool = False) -> list[Any]:
    """Start two processes that train, of which the second may die."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["softmax_bottleneck.training"])
    members = []
    for rank in ("0", "1"):
        variables = {**place, "RANK": rank, "LOCAL_RANK": rank}
        members.append(context.Process(target=_member, args=(config, out, variables, dies and rank == "1")))
        members[-1].start()
    return members


def _codes(members: list[Any]) -> list[int | None]:
    """Wait for processes, and return their exit codes."""
    for member in members:
        member.join()
    return [member.exitcode for member in members]


def test_two_processes_of_the_launcher_train_as_one(tmp_path: Path, configure: Configure) -> None:
    """Without dropout nothing is drawn, and the mean of two halves' gradients is the batch's. One result is printed."""
    no_masks = {"dropout_embedding": 0.0, "dropout_input": 0.0, "dropout_output": 0.0, "weight_drop": 0.0}
    config = configure(
        backbone={**AWD, "hidden_sizes": [8], **no_masks},
        optimizer={"name": "sgd", "learning_rate": 1.0},
        micro_batch_size=1,
        averaging={"start": "epoch", "epoch": 1},
    )
    (tmp_path / "config.toml").write_text(as_toml(config.model_dump(mode="json")), encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "program.py"]
    command = [*launcher, "train", "--config", "config.toml", "--out", "two", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test perplexity") == 1
    train(config, tmp_path / "one")
    for together, alone in zip(rows_of(tmp_path / "two"), rows_of(tmp_path / "one"), strict=True):
        assert together == pytest.approx(alone, rel=1e-4)


def test_all_processes_save_the_step_at_which_they_are_stopped(tmp_path: Path, configure: Configure) -> None:
    """As a job that a cluster preempts: the launcher passes SIGTERM on."""
    config = configure(epochs=500, save_every=1_000_000)
    (tmp_path / "config.toml").write_text(as_toml(config.model_dump(mode="json")), encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    command = [*launcher, "softmax_bottleneck", "train", "--config", "config.toml", "--out", "run", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        metrics = tmp_path / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text(encoding="utf-8")):
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        _, errors = process.communicate(timeout=120)
    (state,) = (tmp_path / "run" / "trainer_state").glob("step-*")
    step = int(state.stem.removeprefix("step-"))
    assert f"interrupted; training stopped at step {step:,} of" in errors


def test_a_process_that_dies_ends_all_and_the_run_continues(tmp_path: Path, configure: Configure) -> None:
    """The survivor says what to do; each process's own random state is saved, so that the end is the same."""
    config, run = configure(), tmp_path / "run"
    assert _codes(_start(config, run, dies=True)) == [1, LOST]
    sentence = run.with_suffix(".txt").read_text(encoding="utf-8")
    assert sentence.startswith("another process has ended (")
    assert sentence.endswith("); saved files are complete: start all processes again to continue")
    assert [file.name for file in (run / "trainer_state").iterdir()] == ["step-000000005.safetensors"]
    with pytest.raises(RunError, match="of 2 processes, not 1"):
        train(config, run)
    assert _codes([*_start(config, run), *_start(config, tmp_path / "whole")]) == [0] * 4
    assert contents(run) == contents(tmp_path / "whole")


def test_columns_that_cannot_be_shared() -> None:
    assert [Processes(index, 3).share(12) for index in range(3)] == [slice(0, 4), slice(4, 8), slice(8, 12)]
    with pytest.raises(ConfigurationError, match="batch_size=20 columns cannot be shared equally by 3 processes"):
        Processes(1, 3).share(20)
