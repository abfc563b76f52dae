"""Streams, signals and limits of real processes, in which the command ``doctor`` does other work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

RUN = """
import json, os, signal, subprocess, sys, threading, time, types
from pathlib import Path
import rich_click as click
import softmax_bottleneck.__main__ as program
from softmax_bottleneck import cli
from softmax_bottleneck.core.workers import run_in_workers

def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)

def run(work):
    command = click.Command("doctor", callback=work)
    sys.modules["softmax_bottleneck.cli.doctor"] = types.SimpleNamespace(command=command)
    sys.argv = ["bottleneck", "doctor"]
    program.run()

"""
EARLY = """
import os, signal, sys
import softmax_bottleneck.__main__ as program

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "rich_click":
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Interrupt())
program.run()
"""
"""The signal comes while packages are loaded."""
COMPUTING = """
import numpy as np

def work():
    threading.Timer(0.5, send).start()
    np.linalg.svd(np.random.default_rng(0).standard_normal((5000, 5000)))

run(work)
"""
"""A decomposition of minutes, which sees no signal."""
CONVERTED = """
def work():
    try:
        send()
        time.sleep(60)
    except KeyboardInterrupt as stop:
        raise ImportError("numpy failed to import") from stop

run(work)
"""
"""A library makes another error of the interruption."""
BURST = """
SENDER = "import os, sys, time\\nfor k in range(300): os.kill(int(sys.argv[1]), (2, 15)[k % 2]); time.sleep(0.001)"

def work():
    subprocess.Popen([sys.executable, "-c", SENDER, str(os.getpid())], stderr=subprocess.DEVNULL)
    time.sleep(60)

run(work)
"""
"""Hundreds of signals come: during the work, while it is left, and after it."""
FINALIZER = """
class Finalized:
    def __del__(self):
        send(signal.SIGTERM)
        time.sleep(0)

def work():
    Finalized()
    time.sleep(60)

run(work)
"""
"""Python drops an exception that a finalizer raises."""
ENDING = """
exit_code = cli.LazyGroup.exit_code

def ended(*arguments, **options):
    try:
        return exit_code(*arguments, **options)
    finally:
        send()

cli.LazyGroup.exit_code = ended
run(lambda: None)
"""
"""The signal comes when the command has just ended."""
PRINTING = """
def work():
    print("a warning", file=sys.stderr)
    click.echo("another", err=True)
    print(json.dumps({"text": "…"}))
    Path("done").touch()

run(work)
"""
WORKERS = """
def sleep(shared, seconds):
    time.sleep(seconds)

def work():
    for _ in run_in_workers(sleep, None, [0.0, 60.0, 60.0], processes=2):
        Path("begun").touch()

if __name__ == "__main__":
    run(work)
"""


def _run(code: str, line: str = '"$@"', **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program by a line of the shell."""
    command = ["sh", "-c", line, "sh", sys.executable, "-c", code if "program.run()" in code else RUN + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **variables})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["EARLY", "COMPUTING", "CONVERTED", "BURST", "ENDING", "FINALIZER"])
def test_an_interruption(name: str) -> None:
    code = 143 if name in ("EARLY", "FINALIZER") else 130
    done = _run(globals()[name])
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "interrupted\n")


def test_an_interruption_of_a_process_group() -> None:
    """A terminal sends Ctrl-C to the workers as well."""
    Path("program.py").write_text(RUN + WORKERS, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "program.py"], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        since = time.monotonic()
        while not Path("begun").exists() and time.monotonic() - since < 90:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=90)
    assert (process.returncode, error) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("shadowed", "arguments"),
    [
        ("multiprocessing", ["argmaxable", "w.npy", "--workers", "2"]),
        ("multiprocessing", ["bench", "heads", "--only", "gss", "--shrink", "100"]),
        ("pip", ["data", "get", "smollm2"]),
        ("rich_click", ["data", "list"]),
    ],
    ids=["workers", "bench", "pip", "python -m"],
)
def test_no_code_of_the_working_folder_runs(shadowed: str, arguments: list[str], folder: Path) -> None:
    (folder / "ours").mkdir()
    np.save("w.npy", np.random.default_rng(0).standard_normal((40, 3)))
    for name in (shadowed, "numpy", "encodings"):
        Path(f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\nraise SystemExit(9)\n")
    variables = {"SOFTMAX_BOTTLENECK_CACHE": str(folder / "ours"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | variables
    program = [Path(sys.executable).with_name("bottleneck")]
    if shadowed == "rich_click":
        Path("encodings.py").unlink()  # Python itself would read it
        program = [sys.executable, "-m", "softmax_bottleneck"]
    done = subprocess.run([*program, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert not (folder / "ran").exists()
    assert done.returncode == (1 if shadowed == "pip" else 0), done.stderr


@pytest.mark.parametrize("line", ['"$@" 2>/dev/full', '"$@" <&- 2>&-', '"$@" <&- >&- 2>&-'])
def test_standard_error_is_full_or_closed(line: str) -> None:
    done = _run(PRINTING, line)
    assert done.returncode == 0
    assert Path("done").exists()
    assert ">&- 2" in line or json.loads(done.stdout) == {"text": "…"}


def test_standard_output_is_full() -> None:
    done = _run(PRINTING, '"$@" >/dev/full')
    assert (done.returncode, done.stderr.count("\n")) == (1, 3)
    assert "No space left on device" in done.stderr


def test_a_narrow_encoding_shows_escape_sequences() -> None:
    done = _run('run(lambda: print("σ\\udcff"))', PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, "\\u03c3\\udcff\n")


def test_what_the_process_sets_can_be_switched_off() -> None:
    code = 'run(lambda: print(os.environ.get("MPLBACKEND"), os.environ.get("GOMP_SPINCOUNT")))'
    assert _run(code, MPLBACKEND="svg").stdout == "agg 10000\n"
    assert _run(code, MPLBACKEND="svg", SOFTMAX_BOTTLENECK_PROCESS="plain").stdout == "svg None\n"


def test_little_memory() -> None:
    code = "import sys, softmax_bottleneck.__main__ as program\nsys.argv[1:] = ['rank', 'm.npy']\nprogram.run()"
    done = _run(code, 'ulimit -v 400000; exec "$@"')
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in done.stderr
