"""An array of Slurm jobs, with a scheduler that is a script: the jobs themselves run as Slurm would run them."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from softmax_bottleneck.errors import ConfigurationError, OutputError
from softmax_bottleneck.synthetic import FitConfig, grid, run_grid, submit

SBATCH = """#!{python}
import os, re, shlex, subprocess, sys
text = open(sys.argv[-1]).read()
count = int(re.search(r"--array=0-(\\d+)", text)[1]) + 1 if "--array" in text else 1
command = next(line for line in text.splitlines() if line.startswith("srun"))
words = shlex.split(command)
start = next(i for i, word in enumerate(words) if "python" in os.path.basename(word))
for task in range(count):
    own = {{"SLURM_JOB_ID": str(500 + task), "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": str(task),
           "SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
           "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "localhost", "SUBMITIT_EXECUTOR": "slurm"}}
    subprocess.Popen(words[start:], env={{**os.environ, **own}}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("Submitted batch job 77")
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "srun", "sacct", "scancel"):
        program = folder / name
        program.write_text(
            SBATCH.format(python=sys.executable) if name == "sbatch" else "#!/bin/sh\n", encoding="utf-8"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_jobs_write_the_cells_that_are_not_there(tmp_path: Path, slurm: Path) -> None:
    cells = grid(["softmax"], [0.1], [12], [2, 3, 4], 1, contexts=20, fit=FitConfig(first_cycle=3, cycles=1, rounds=0))
    run_grid(cells[:2], tmp_path, processes=1)
    (tmp_path / f"{cells[1].name}.json").write_text("{", encoding="utf-8")
    parameters = {"slurm_partition": "short"}
    with pytest.raises(
        OutputError, match=r"is damaged or of another kind .*; remove it, and its cell will be computed"
    ):
        submit(cells, tmp_path, device="auto", parameters=parameters)
    (tmp_path / f"{cells[1].name}.json").unlink()
    assert submit(cells, tmp_path, device="auto", parameters=parameters) == ["77_0", "77_1"]
    [script, *_] = (tmp_path / "slurm").glob("*submission*.sh")
    wanted = {"#SBATCH --time=1440", "#SBATCH --mem=1GB", "#SBATCH --partition=short"}
    assert wanted <= set(script.read_text(encoding="utf-8").splitlines())
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "slurm").glob("*_result.pkl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")}
    assert [result["dim"] for result in run_grid(cells, tmp_path, processes=1)] == [2, 3, 4]
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")} == before
    assert submit(cells, tmp_path) == []


def test_what_cannot_be_submitted(tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused job, an unknown parameter, no Slurm and no submitit; no device is looked for here."""
    cells = grid(["softmax"], [0.1], [12], [2, 3], 1, contexts=20)
    refused = "cannot be submitted to Slurm from here: .*"
    with pytest.raises(ConfigurationError, match=f"{refused}nonsense"):
        submit(cells, tmp_path, device="cuda", parameters={"nonsense": 1})
    (slurm / "sbatch").write_text("#!/bin/sh\necho 'invalid partition specified' >&2\nexit 1\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"{refused}invalid partition"):
        submit(cells, tmp_path, device="cuda")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=refused):
        submit(cells, tmp_path, device="cuda")
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigurationError, match=r"launcher='slurm' needs the package submitit: pip install"):
        submit([], tmp_path)
