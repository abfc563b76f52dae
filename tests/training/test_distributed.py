"""Two processes against one, killed and continued, and PyTorch's launcher."""

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

from softmax_bottleneck.core import parallel
from softmax_bottleneck.core.parallel import Processes
from softmax_bottleneck.errors import BottleneckError, ConfigurationError, RunError
from softmax_bottleneck.training import RunConfig, loop

from .conftest import AWD, Configure, contents, rows_of, train

LOST = 9
"""Exit code of a process that dies."""
PROGRAM = """
import sys
from pathlib import Path
from softmax_bottleneck.cli import main
try:
    main(sys.argv[1:], prog_name="bottleneck")
finally:
    threads = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
    assert not any("gloo" in name for name in threads), f"at the interpreter's end there were still {threads}"
"""


def _slow() -> None:
    """Let a validation take longer than a lost process is waited for."""
    parallel.SECONDS_TO_WAIT = 2
    validate = loop.Loop._validate

    def slow(self: loop.Loop, epoch: int) -> Any:
        time.sleep(2.5)
        return validate(self, epoch)

    loop.Loop._validate = slow  # type: ignore[method-assign]


def _dying() -> None:
    """Let the second process die after seven steps."""
    step = loop.Loop._step

    def dies(self: loop.Loop, *rest: Any) -> None:
        if self.state.step == 7 and self.processes.index == 1:
            os._exit(LOST)
        step(self, *rest)

    loop.Loop._step = dies  # type: ignore[method-assign]


def _member(config: RunConfig, out: Path, variables: Mapping[str, str], prepare: Any) -> None:
    """Train as one of two processes; write the sentence of an error into a file."""
    os.environ.update(variables)
    if prepare is not None:
        prepare()
    try:
        train(config, out)
    except BottleneckError as error:
        out.with_suffix(".txt").write_text(str(error), encoding="utf-8")
        sys.exit(1)


def _train(config: RunConfig, out: Path, prepare: Any = None) -> list[int | None]:
    """Train in two processes, and return their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["softmax_bottleneck.training"])
    members = [
        context.Process(target=_member, args=(config, out, {**place, "RANK": rank, "LOCAL_RANK": rank}, prepare))
        for rank in ("0", "1")
    ]
    for member in members:
        member.start()
    for member in members:
        member.join()
    return [member.exitcode for member in members]


def test_two_processes_train_as_one(tmp_path: Path, configure: Configure) -> None:
    """Without dropout nothing is drawn, and the mean of two halves' gradients is the batch's."""
    no_masks = {"dropout_embedding": 0.0, "dropout_input": 0.0, "dropout_output": 0.0, "weight_drop": 0.0}
    config = configure(
        backbone={**AWD, "hidden_sizes": [8], **no_masks},
        optimizer={"name": "sgd", "learning_rate": 1.0},
        micro_batch_size=1,
        averaging={"start": "epoch", "epoch": 1},
    )
    assert _train(config, tmp_path / "two", _slow) == [0, 0]
    train(config, tmp_path / "one")
    for together, alone in zip(rows_of(tmp_path / "two"), rows_of(tmp_path / "one"), strict=True):
        assert together == pytest.approx(alone, rel=1e-4)


def test_a_process_that_dies_ends_all_and_the_run_continues(tmp_path: Path, configure: Configure) -> None:
    """The survivor says what to do; each process's own random state is saved, so that the end is the same."""
    config, run = configure(), tmp_path / "run"
    assert _train(config, run, _dying) == [1, LOST]
    sentence = run.with_suffix(".txt").read_text(encoding="utf-8")
    assert sentence.startswith("another process has ended (")
    assert sentence.endswith("); saved files are complete: start all processes again to continue")
    assert [file.name for file in (run / "trainer_state").iterdir()] == ["step-000000005.safetensors"]
    with pytest.raises(RunError, match="of 2 processes, not 1"):
        train(config, run)
    assert _train(config, run) == _train(config, tmp_path / "whole") == [0, 0]
    assert contents(run) == contents(tmp_path / "whole")


def test_the_launcher(tmp_path: Path, configure: Configure) -> None:
    """The command of two processes prints its result once, and no thread is left at its end."""
    (tmp_path / "config.json").write_text(configure(epochs=1).model_dump_json(), encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "program.py"]
    command = [*launcher, "train", "--config", "config.json", "--out", "run", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test perplexity") == 1


def test_columns_that_cannot_be_shared() -> None:
    assert [Processes(index, 3).share(12) for index in range(3)] == [slice(0, 4), slice(4, 8), slice(8, 12)]
    with pytest.raises(ConfigurationError, match="batch_size=20 columns cannot be shared equally by 3 processes"):
        Processes(1, 3).share(20)
