"""PyTorch's launcher with two processes gives the report of one, and one that dies ends all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logits of rank 6 in float32, in many blocks."""
    rng = np.random.default_rng(0)
    path = tmp_path / "logits.npy"
    np.save(path, (rng.standard_normal((600, 6)) @ rng.standard_normal((6, 40))).astype(np.float32))
    return path


# A block holds 50 rows, so that there is something to share.
SCRIPT = """
import sys
from softmax_bottleneck.language_models import source as base
base.BLOCK_BYTES = 50 * 40 * 4
from softmax_bottleneck.cli import main
main(sys.argv[1:], prog_name="bottleneck")
"""


def _launch(tmp_path: Path, *arguments: str, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    driver = tmp_path / "driver.py"
    driver.write_text(script, encoding="utf-8")
    command = [*LAUNCH, "--nproc-per-node=2", str(driver), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=120)


UNEQUAL_MEMORY = SCRIPT.replace(
    "from softmax_bottleneck.cli import main",
    "import os\nfrom softmax_bottleneck.spectrum import settings\n"
    "settings.free_memory = lambda: 4 * 10**9 if os.environ['RANK'] == '0' else 4 * 6 * 8 * 40 * 12\n"
    "from softmax_bottleneck.cli import main",
)


@pytest.mark.parametrize(
    ("method", "script"),
    [("gram", UNEQUAL_MEMORY), ("tsqr", SCRIPT.replace("50 * 40 * 4", "600 * 40 * 4"))],
    ids=["unequal memory", "fewer blocks than processes"],
)
def test_the_report_of_one_process(tmp_path: Path, logits: Path, method: str, script: str) -> None:
    """Where the second has no memory for the matrix, both sum its Gram matrix; the first alone would keep its rows."""
    from softmax_bottleneck import rank

    eps = "float64" if method == "tsqr" else "float32"
    options = ["--width", "12"] if method == "gram" else ["--method", method]
    options += ["--kind", "logits", "--eps", eps, "--json", "-"]
    done = _launch(tmp_path, "rank", str(logits), *options, script=script)
    assert done.returncode == 0, done.stderr
    together = json.loads(done.stdout)
    alone = rank(logits, kind="logits", method=method, eps=eps).to_dict()
    assert (together["contexts"], together["method"]) == (600, method)
    for which in ("rank", "rank_centered"):
        for key in ("value", "low", "high", "determinate"):
            assert together[which][key] == alone[which][key]
        assert together[which]["sigma_1"] == pytest.approx(alone[which]["sigma_1"], rel=1e-12)
        assert together[which]["sigma_r"] == pytest.approx(alone[which]["sigma_r"], rel=1e-6)


@pytest.mark.parametrize(
    ("before", "row", "sentence"), [("import os\nif os.environ['RANK'] == '1': os._exit(9)\n", 0, ""),
                                    ("", 560, "at row 560, column 3")], ids=["dies", "bad row"],
)  # fmt: skip
def test_a_process_that_fails_ends_all(tmp_path: Path, logits: Path, before: str, row: int, sentence: str) -> None:
    matrix, started = np.load(logits), time.monotonic()
    matrix[row, 3] = np.nan if row else 0.0
    np.save(logits, matrix)
    options = ["--kind", "logits", "--method", "gram", "--eps", "float32"]
    done = _launch(tmp_path, "rank", str(logits), *options, script=before + SCRIPT)
    assert done.returncode != 0
    assert (done.stdout, sentence in done.stderr) == ("", True)
    assert time.monotonic() - started < 60
