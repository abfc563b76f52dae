"""Completion with the tab key: the line of docs/commands.md, in a real bash and from the command itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from softmax_bottleneck.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")


def _answer(**variables: str) -> list[str]:
    done = CliRunner(env=variables).invoke(main, [], prog_name="bottleneck")
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ra", "plain,rank"),
        ("rank --wid", "plain,--width"),
        ("rank --inf dr", "plain,drop-columns"),
        ("train --preset demo-s", "plain,demo-softmax"),
        ("bench heads --only mos,lms-p", "plain,mos,lms-plif"),
        ("rank x --data wiki", "plain,wikitext-2"),
        ("compare a my", "file,my"),
    ],
)
def test_words_are_completed(words: str, expected: str) -> None:
    line = f"bottleneck {words}"
    answer = _answer(_BOTTLENECK_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
    assert expected in answer


def test_every_shell_gets_a_script() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert f"_BOTTLENECK_COMPLETE={shell}_source bottleneck" in PAGE
        assert "bottleneck" in "".join(_answer(_BOTTLENECK_COMPLETE=f"{shell}_source"))


def test_bash_completes_after_the_documented_line(tmp_path: Path) -> None:
    """The search path begins with the command, so that no other installation answers."""
    command = tmp_path / "bottleneck"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m softmax_bottleneck "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    [line] = re.findall(r"\| bash .*\| `(.+)` \|", PAGE)
    bash = shutil.which("bash")
    assert bash is not None
    script = (
        f"{line}; COMP_WORDS=(bottleneck synth); COMP_CWORD=1; _bottleneck_completion bottleneck synth bottleneck; "
        'echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "synthetic"
