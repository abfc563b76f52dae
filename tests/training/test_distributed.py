"""PyTorch's launcher with two processes against one, killed and continued, and with one of them dying."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from softmax_bottleneck.core.parallel import Processes
from softmax_bottleneck.errors import ConfigurationError, RunError
from softmax_bottleneck.training import RunConfig

from .conftest import AWD, Configure, contents, rows_of, train

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
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
SLOW = """
import time
from softmax_bottleneck.core import parallel
from softmax_bottleneck.training import loop
parallel.SECONDS_TO_WAIT = 2
validate = loop.Loop._validate
def slow(self, *rest):
    time.sleep(3.5)
    return validate(self, *rest)
loop.Loop._validate = slow
"""
DIES = """
import os
from softmax_bottleneck.training import loop
step = loop.Loop._step
def dies(self, *rest):
    if self.state.step == 7 and self.processes.index == 1:
        os._exit(9)
    return step(self, *rest)
loop.Loop._step = dies
"""


def _launch(folder: Path, config: RunConfig, out: str, *, before: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    (folder / "program.py").write_text(before + PROGRAM, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "program.py"]
    command = [*launcher, "train", "--config", "config.json", "--out", out, "--device", "cpu"]
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120
    )


def test_two_processes_train_as_one(tmp_path: Path, configure: Configure) -> None:
    """Without dropout nothing is drawn, and the mean of two halves' gradients is the batch's.

    A validation may take longer than a lost process is waited for.
    """
    no_masks = {"dropout_embedding": 0.0, "dropout_input": 0.0, "dropout_output": 0.0, "weight_drop": 0.0}
    config = configure(
        backbone={**AWD, "hidden_sizes": [8], **no_masks},
        optimizer={"name": "sgd", "learning_rate": 1.0},
        micro_batch_size=1,
        averaging={"start": "epoch", "epoch": 1},
    )
    done = _launch(tmp_path, config, "two", before=SLOW)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test perplexity") == 1
    train(config, tmp_path / "one")
    for together, alone in zip(rows_of(tmp_path / "two"), rows_of(tmp_path / "one"), strict=True):
        assert together == pytest.approx(alone, rel=1e-4)


def test_a_process_that_dies_ends_all_and_the_run_continues(tmp_path: Path, configure: Configure) -> None:
    """The survivor says what to do; each process's own random state is saved, so that the end is the same.

    The first two processes have no launcher, which would end the survivor before it says anything.
    """
    config = configure()
    (tmp_path / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    program = DIES + "from softmax_bottleneck.cli import main\nmain()\n"
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "program.py", "train", "--config", "config.json", "--out", "run", "--device", "cpu"]
    processes = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**ENVIRONMENT, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    survivor, other = (process.communicate(timeout=60)[1] for process in processes)
    assert [process.returncode for process in processes] == [1, 9], survivor + other
    text = (
        r"^Error: another process has ended \([^/]*\); saved files are complete: start all processes again to continue$"
    )
    assert re.search(text, survivor, re.MULTILINE)
    assert [file.name for file in (tmp_path / "run" / "trainer_state").iterdir()] == ["step-000000005.safetensors"]
    with pytest.raises(RunError, match="of 2 processes, not 1"):
        train(config, tmp_path / "run")
    for out in ("run", "whole"):
        done = _launch(tmp_path, config, out)
        assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_columns_that_cannot_be_shared() -> None:
    assert [Processes(index, 3).share(12) for index in range(3)] == [slice(0, 4), slice(4, 8), slice(8, 12)]
    with pytest.raises(ConfigurationError, match="batch_size=20 columns cannot be shared equally by 3 processes"):
        Processes(1, 3).share(20)
